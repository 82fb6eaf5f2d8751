"""What a run's record says was measured, and how the plan's predictions compare with it.

Memory is the largest value of any logged step (bytes), step time the median over the steps after the first line
(warm-up, compilation), total time the record's end; a quantity that no sensor gave is None, never zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from stoker.core.comparison import Comparison
from stoker.core.estimate import Source
from stoker.core.plan import Candidate
from stoker.core.record import EvalLine, RunRecord, StepLine
from stoker.core.utilisation import share_of_peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Totals of one record. `padding_frac`: share of computed tokens that were padding."""

    last_step: int
    elapsed_s: float | None
    step_s: float | None
    samples_per_s: float | None
    tokens_per_s: float | None
    padding_frac: float | None
    data_wait_frac: float | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    cost_usd: float | None
    save_s: float | None
    eval_s: float | None

    @property
    def unused_bytes(self) -> int:
        """Reserved by the allocator beyond what was allocated at most; 0 where nobody told both."""
        if self.peak_reserved_bytes is None or self.peak_allocated_bytes is None:
            return 0
        return max(self.peak_reserved_bytes - self.peak_allocated_bytes, 0)


def measure(record: RunRecord) -> Measured:
    """The totals of a record, also of one that is still running or was killed."""
    steps = record.steps
    settled = steps[1:] if len(steps) > 1 else steps
    busy_s = _stepping_s(steps)
    samples, tokens = sum(line.samples for line in steps), sum(line.tokens for line in steps)
    padded = sum(line.padded_tokens for line in steps)
    ends = [line.elapsed_s for lines in (steps, record.evals, record.saves, record.events) for line in lines[-1:]]
    final = _number(record.end.get("elapsed_s")) if record.end else None
    costs = [line.cost_usd for line in steps if line.cost_usd is not None]
    return Measured(
        last_step=steps[-1].step if steps else 0,
        elapsed_s=final if final is not None else max(ends, default=None),
        step_s=median(line.step_s for line in settled) if settled else None,
        samples_per_s=samples / busy_s if busy_s and samples else None,
        tokens_per_s=tokens / busy_s if busy_s and tokens else None,
        padding_frac=1.0 - tokens / padded if padded and tokens else None,
        data_wait_frac=_wait_frac(settled),
        peak_allocated_bytes=_peak([*(line.allocated_bytes for line in steps), _end_bytes(record, "allocated")]),
        peak_reserved_bytes=_peak([*(line.reserved_bytes for line in steps), _end_bytes(record, "reserved")]),
        cost_usd=max(costs, default=None),
        save_s=sum(line.save_s for line in record.saves) if record.saves else None,
        eval_s=sum(line.eval_s for line in record.evals) if record.evals else None,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _peak(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _end_bytes(record: RunRecord, kind: str) -> int | None:
    """The whole run's peak (evaluation and saving included), where the record's end tells it."""
    value = _number(record.end.get(f"peak_{kind}_bytes")) if record.end else None
    return int(value) if value else None


def _stepping_s(steps: Sequence[StepLine]) -> float:
    """Seconds spent in steps: each line's mean step time times the steps since the line before."""
    before, total = 0, 0.0
    for line in steps:
        total += line.step_s * (line.step - before)
        before = line.step
    return total


def _wait_frac(steps: Sequence[StepLine]) -> float | None:
    whole = sum(line.step_s for line in steps)
    return sum(line.data_wait_s for line in steps) / whole if whole else None


def best_eval(record: RunRecord) -> EvalLine | None:
    """The evaluation that was best when it was made and has not been beaten since."""
    best = [line for line in record.evals if line.is_best]
    return best[-1] if best else None


def compare(record: RunRecord, measured: Measured, candidate: Candidate | None) -> tuple[Comparison, ...]:
    """Predicted beside measured; total time and cost only for a finished run."""
    if candidate is None:
        return ()
    time, cost = candidate.time, candidate.cost
    finished = record.status == "finished"
    spread_low, spread_high = _spread(time.total_s, time.low_s), _spread(time.total_s, time.high_s)
    rows = [
        *_compare_memory(measured, candidate),
        Comparison(
            name="step",
            unit="s",
            predicted=time.step_s,
            low=time.step_s * spread_low,
            high=time.step_s * spread_high,
            measured=measured.step_s,
            source=time.source,
        ),
        Comparison(
            name="total",
            unit="s",
            predicted=time.total_s,
            low=time.low_s,
            high=time.high_s,
            measured=measured.elapsed_s if finished else None,
            source=time.source,
        ),
    ]
    rows += _compare_tiers(record, candidate)
    rows += _compare_mfu(measured, candidate)
    if cost is not None:
        rows.append(
            Comparison(
                name="cost",
                unit="usd",
                predicted=cost.total_usd,
                low=cost.low_usd,
                high=cost.high_usd,
                measured=measured.cost_usd if finished else None,
                source=Source.ASSUMED if not cost.as_of else time.source,
            )
        )
    return tuple(rows)


def _compare_memory(measured: Measured, candidate: Candidate) -> tuple[Comparison, ...]:
    """On a GPU the allocator's bytes (the context, which it cannot see, left out); on a CPU the process."""
    memory = candidate.memory
    if candidate.cluster.device.kind == "cpu":
        return (
            Comparison(
                name="peak_process",
                unit="bytes",
                predicted=memory.expected_bytes,
                low=memory.low_bytes,
                high=memory.high_bytes,
                measured=measured.peak_allocated_bytes,
                source=memory.source,
            ),
        )
    context = memory.terms.get("framework", 0)
    allocated = Comparison(
        name="peak_allocated",
        unit="bytes",
        predicted=memory.peak_allocated_bytes,
        low=None,
        high=None,
        measured=measured.peak_allocated_bytes,
        source=memory.source,
    )
    reserved = Comparison(
        name="peak_reserved",
        unit="bytes",
        predicted=memory.expected_bytes - context,
        low=memory.low_bytes - context,
        high=memory.high_bytes - context,
        measured=measured.peak_reserved_bytes,
        source=memory.source,
    )
    return allocated, reserved


def _compare_tiers(record: RunRecord, candidate: Candidate) -> list[Comparison]:
    """A step under memory tiers by term: computing, and waiting for what moves or is updated."""
    found = record.end.get("tier_terms") if record.end else None
    if not found:
        return []
    predicted = candidate.time.step_terms
    terms = {
        "tier_compute": (("forward", "backward", "host_overhead"), "compute_s"),
        "tier_waiting": (("exposed_transfer", "optimizer"), "waiting_s"),
    }
    return [
        Comparison(
            name=name,
            unit="s",
            predicted=sum(predicted.get(part, 0.0) for part in parts),
            low=None,
            high=None,
            measured=_number(found.get(measured)),
            source=candidate.time.source,
        )
        for name, (parts, measured) in terms.items()
    ]


def _compare_mfu(measured: Measured, candidate: Candidate) -> list[Comparison]:
    """Share of the dense peak of the device and format that ran; none where a plan does not count FLOPs.

    A share above one is no figure, so it is left out here and told as a note (`mfu_problem`).
    """
    time = candidate.time
    if not time.model_flops or candidate.cluster.device.kind == "cpu":  # a CPU's peak is itself a measurement
        return []
    shares = [_mfu(candidate, step_s)[0] for step_s in (time.step_s, measured.step_s)]
    if shares[0] is None:
        return []
    row = Comparison(
        name="mfu", unit="frac", predicted=shares[0], low=None, high=None, measured=shares[1], source=time.source
    )
    return [row]


def mfu_problem(measured: Measured, candidate: Candidate | None) -> str:
    """Why the measured step gives no MFU: more than the peak cannot be (case 37). Empty where it is a figure."""
    if candidate is None or not candidate.time.model_flops or candidate.cluster.device.kind == "cpu":
        return ""
    return _mfu(candidate, measured.step_s)[1]


def _mfu(candidate: Candidate, step_s: float | None) -> tuple[float | None, str]:
    if not step_s:
        return None, ""
    dtype = candidate.run_config.precision.partition("_")[0]
    return share_of_peak(candidate.time.model_flops / step_s, candidate.cluster.device, dtype)


def _spread(expected: float, edge: float) -> float:
    return edge / expected if expected > 0 else 1.0
