"""`plan --trace`: the pick's memory traced from the model's own code, beside the analytic estimate."""

from dataclasses import dataclass
from math import ceil
from typing import Any

from stoker.core.codec import encode
from stoker.core.efficiency import Efficiency
from stoker.core.estimate import MemoryEstimate
from stoker.core.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """`memory` from the trace, or None and the `gap`; `analytic`: the plan's own. `notes`: what it cannot see."""

    rank: int
    analytic: MemoryEstimate
    memory: MemoryEstimate | None
    gap: str = ""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For `plan --json` under `traced`; `difference_frac`: traced over analytic allocated bytes, less 1."""
        difference = None
        if self.memory is not None:
            difference = self.memory.peak_allocated_bytes / self.analytic.peak_allocated_bytes - 1.0
        return {
            "rank": self.rank,
            "memory": encode(self.memory),
            "gap": self.gap or None,
            "difference_frac": difference,
            "notes": list(self.notes),
        }


def trace_pick(plan: Plan, efficiency: Efficiency) -> Traced | None:
    """The pick traced, else the first candidate; None where there is none."""
    from stoker.engine.trace_estimate import TraceGap, trace_memory
    from stoker.estimators.scenario import fullest_batch
    from stoker.estimators.traced import traced_estimate
    from stoker.planner.breakdown import evaluator_of

    candidate = plan.picked or next(iter(plan.candidates), None)
    if candidate is None:
        return None
    scenario = evaluator_of(plan, efficiency).scenario(candidate.cluster, candidate.run_config)
    batch = fullest_batch(scenario)
    seq_len = ceil(batch.tokens / max(batch.samples, 1.0))
    result = trace_memory(plan, candidate, samples=round(batch.samples), seq_len=seq_len)
    analytic = candidate.memory
    if isinstance(result, TraceGap):
        return Traced(rank=candidate.rank, analytic=analytic, memory=None, gap=result.reason)
    memory = traced_estimate(scenario, analytic, result.terms)
    return Traced(rank=candidate.rank, analytic=analytic, memory=memory, notes=result.notes)
