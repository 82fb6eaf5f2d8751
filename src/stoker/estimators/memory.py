"""Memory of the fullest rank in bytes: what it holds at each phase, what the allocator reserves, and whether it fits.

State comes from the ledger (bytes a parameter), activations from the tensors that backward needs, counted for the
longest batch of the data (case 8), the loss from its kernel's own count (case 1). Phases: `memory_phases`; reserved
beyond allocated: `memory_reserved`; the interval: `memory_interval`. Formulas: docs/math.md, section 1.
"""

from stoker.core.estimate import MemoryEstimate, Source, weakest
from stoker.core.units import GB
from stoker.estimators.memory_interval import memory_interval
from stoker.estimators.memory_phases import Dynamic, dynamic_bytes, gradient_bytes, phase_bytes
from stoker.estimators.memory_reserved import slack_bytes
from stoker.estimators.memory_units import saved_bytes
from stoker.estimators.scenario import Scenario, fullest_batch
from stoker.estimators.stages import stage_scenarios
from stoker.estimators.tiers import tiered_memory
from stoker.estimators.widening import widened_bytes, widening
from stoker.techniques.parallel import parallel

__all__ = ["estimate_memory", "estimate_ranks", "saved_bytes"]


def estimate_memory(scenario: Scenario) -> MemoryEstimate:
    """Memory of the fullest rank of `scenario`; `terms` sum to `expected_bytes` (reserved plus context).

    Phases are allocated bytes plus context. Of a pipeline's unlike stages the fullest counts. Under placement tiers
    `terms` are those of GPU memory, and `tiers` says what lies elsewhere.
    """
    return max(estimate_ranks(scenario), key=lambda estimate: estimate.expected_bytes)


def estimate_ranks(scenario: Scenario) -> tuple[MemoryEstimate, ...]:
    """One estimate for each unlike GPU: the first and the last stage of a pipeline or a layer split; else just one."""
    return tuple(_placed(stage) for stage in stage_scenarios(scenario) or (scenario,))


def _placed(scenario: Scenario) -> MemoryEstimate:
    whole = _of_rank(scenario)
    return tiered_memory(scenario, whole) if scenario.config.placement == "tiers" else whole


def _of_rank(scenario: Scenario) -> MemoryEstimate:
    sums, device = scenario.sums, scenario.cluster.device
    outside = scenario.efficiency.framework(device)
    dynamic = dynamic_bytes(scenario)
    tokens = fullest_batch(scenario).tokens
    comm_buffers = _comm_buffers(scenario, tokens)
    gradients = gradient_bytes(scenario)
    several = scenario.config.parallel.world_size > 1
    context = float(outside.context_bytes + (outside.communicator_bytes if several else 0))
    phases = phase_bytes(scenario, dynamic, comm_buffers=comm_buffers, workspace=float(outside.workspace_bytes))
    allocated = max(phases.values())
    terms = {
        "params": sums.params_bytes,
        "grads": gradients,
        "optimizer_states": sums.optimizer_bytes,
        **_coming(dynamic, allocated - sums.params_bytes - gradients - sums.optimizer_bytes - comm_buffers),
        "comm_buffers": comm_buffers,
        "framework": context,
    }
    held = sums.params_bytes + sums.optimizer_bytes + gradients
    terms["fragmentation"] = slack_bytes(scenario, held, dynamic, room=device.visible_bytes - context - allocated)
    factor = scenario.correction.memory_factor if scenario.correction else 1.0
    rounded = {name: round(value * factor) for name, value in terms.items()}
    expected = sum(rounded.values())
    low, high = widened_bytes(*memory_interval(scenario, rounded, outside), widening(scenario.num_assumed))
    source = weakest(Source.ANALYTIC, outside.source, *((Source.ASSUMED,) if scenario.num_assumed else ()))
    return MemoryEstimate(
        low_bytes=round(low),
        expected_bytes=expected,
        high_bytes=round(high),
        peak_allocated_bytes=round(allocated * factor),
        visible_bytes=device.visible_bytes,
        terms=rounded,
        phases={name: round((value + context) * factor) for name, value in phases.items()},
        tiers={"hbm": expected, "dram": 0, "nvme": 0},
        source=Source.CALIBRATED if scenario.correction else source,
        correction_factor=factor,
    )


def _comm_buffers(scenario: Scenario, tokens: float) -> float:
    """What the parallel technique states; where frozen weights stay gathered, all of them instead of its units."""
    flat, gathered = parallel(scenario.config.parallel).buffer_bytes(scenario.ledger, scenario.config, tokens)
    if scenario.config.parallel.dp_shard > 1:
        flat += scenario.stack.bucket_gb * GB
    if not scenario.stack.gathers_frozen or not gathered:
        return flat + gathered
    groups = scenario.ledger.groups
    whole = sum(g.repeats * g.num_params * g.weight_bytes_per_param for g in groups if g.base_trainable == 0)
    return flat + max(gathered, whole)


def _coming(dynamic: Dynamic, room: float) -> dict[str, float]:
    """`room` bytes, what the peak has beyond state, gradients and buffers, as activations, logits and temporaries.

    Where gradients take the place of dying activations, or the optimizer's step is the peak, the parts are cut to
    what stands beside them, so that the terms sum to the peak.
    """
    room = max(room, 0.0)
    activations, logits = dynamic.kept, dynamic.loss.peak
    whole = activations + logits
    share = min(1.0, room / whole) if whole else 0.0
    return {
        "activations": activations * share,
        "logits": logits * share,
        "temp_buffers": room - whole * share,
    }
