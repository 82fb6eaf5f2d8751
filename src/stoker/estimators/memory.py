"""Memory of the fullest rank in bytes: what it holds at each phase, what the allocator reserves, and whether it fits.

State comes from the ledger (bytes a parameter), activations from the tensors that backward needs, counted for the
longest batch of the data (case 8), the loss from its kernel's own count (case 1). Reserved memory exceeds allocated
memory by a share of what comes and goes; the shares are fitted on 79 measured rows (docs/math.md, section 1).
"""

from dataclasses import dataclass
from math import sqrt

from stoker.core.efficiency import FrameworkBytes
from stoker.core.estimate import MemoryEstimate, Source, weakest
from stoker.estimators.ledger_sums import UnitSums
from stoker.estimators.scenario import Batch, Scenario, fullest_batch
from stoker.techniques.loss import loss
from stoker.techniques.parallel import parallel

_Z90 = 1.6449  # 5 % and 95 % points of a normal, in standard deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dynamic:
    """What comes and goes within a step, bytes: kept activations, loss, the largest unit's own work, casts."""

    activations: float
    logits: float
    working: float
    casts: float
    forward: float

    @property
    def temp(self) -> float:
        """Beyond activations: casts, and the part of a unit's backward that the loss had not already reached."""
        return self.casts + max(self.working - self.logits, 0.0)

    @property
    def total(self) -> float:
        return self.activations + self.logits + self.temp


def estimate_memory(scenario: Scenario) -> MemoryEstimate:
    """Memory of the fullest rank of `scenario`; `terms` sum to `expected_bytes` (reserved plus context).

    Phases are allocated bytes plus context. Gradients are held beside the activations when micro-batches
    accumulate, when DDP views them in its buckets, or when an fp32 master makes them a buffer of its own; otherwise
    they appear while the activations die, and only the larger of the two counts.
    """
    sums, device = scenario.sums, scenario.cluster.device
    outside = scenario.efficiency.framework(device)
    dynamic = _dynamic(scenario, fullest_batch(scenario))
    comm_buffers = sum(parallel(scenario.config.parallel).buffer_bytes(scenario.ledger, scenario.config))
    gradients = sums.grads_bytes + sums.accumulator_bytes
    several = scenario.config.parallel.world_size > 1
    context = float(outside.context_bytes + (outside.communicator_bytes if several else 0))
    phases = _phases(scenario, dynamic, comm_buffers, float(outside.workspace_bytes))
    allocated = max(phases.values())
    terms = {
        "params": sums.params_bytes,
        "grads": gradients,
        "optimizer_states": sums.optimizer_bytes,
        "activations": dynamic.activations,
        "logits": dynamic.logits,
        "temp_buffers": max(
            dynamic.temp + outside.workspace_bytes, sums.step_temp_bytes - dynamic.activations - dynamic.logits
        ),
        "comm_buffers": comm_buffers,
        "framework": context,
    }
    reserved = allocated + _slack(scenario, sums.params_bytes + sums.optimizer_bytes + gradients, dynamic)
    terms["fragmentation"] = max(reserved - (sum(terms.values()) - context), 0.0)
    factor = scenario.correction.memory_factor if scenario.correction else 1.0
    rounded = {name: round(value * factor) for name, value in terms.items()}
    expected = sum(rounded.values())
    low, high = _interval(scenario, rounded, outside)
    return MemoryEstimate(
        low_bytes=round(low),
        expected_bytes=expected,
        high_bytes=round(high),
        peak_allocated_bytes=round(allocated * factor),
        visible_bytes=device.visible_bytes,
        terms=rounded,
        phases={name: round((value + context) * factor) for name, value in phases.items()},
        tiers={"hbm": expected, "dram": 0, "nvme": 0},
        source=Source.CALIBRATED if scenario.correction else weakest(Source.ANALYTIC, outside.source),
        correction_factor=factor,
    )


def _phases(scenario: Scenario, dynamic: _Dynamic, comm_buffers: float, workspace: float) -> dict[str, float]:
    """Allocated bytes at the fullest moment of each phase, context left out."""
    sums = scenario.sums
    state = sums.params_bytes + sums.optimizer_bytes
    gradients = sums.grads_bytes + sums.accumulator_bytes
    coming = dynamic.activations + dynamic.logits + dynamic.temp + workspace
    backward = coming + gradients if _holds_gradients(scenario) else max(coming, gradients)
    around = comm_buffers + workspace
    return {
        "load": sums.params_bytes,
        "forward": state + dynamic.forward + around,
        "backward": state + backward + comm_buffers,
        "optimizer": state + gradients + sums.step_temp_bytes + around,
        "evaluation": state + _evaluation_bytes(scenario) + around,
        "save": state,
    }


def _holds_gradients(scenario: Scenario) -> bool:
    config = scenario.config
    masters = any(g.master_bytes_per_param > 0 and g.base_trainable > 0 for g in scenario.ledger.groups)
    return masters or config.gradient_accumulation_steps > 1 or config.parallel.dp_replicate > 1


def _dynamic(scenario: Scenario, batch: Batch) -> _Dynamic:
    """Activations kept at the end of forward, and the largest transient of backward.

    Under recompute: the inputs of every recomputed unit, and one unit's own saved tensors at a time; the loss and
    that unit never stand together, so the larger counts.
    """
    kept = working = casts = inputs = 0.0
    for unit in scenario.sums.units:
        saved = saved_bytes(unit, batch)
        scores = batch.tokens * unit.saved_bytes_per_key * batch.seq_len  # their gradients, as large as they are
        casts += unit.repeats * unit.cast_bytes
        if not unit.in_backward:
            inputs = max(inputs, 2.0 * unit.input_bytes * batch.tokens)
        elif unit.recomputed:
            kept += unit.repeats * unit.input_bytes * batch.tokens
            working = max(working, saved + scores + unit.input_bytes * batch.tokens)
        else:
            kept += unit.repeats * saved
            working = max(working, scores + 2.0 * unit.input_bytes * batch.tokens)  # the gradient, in and out
    kept *= scenario.ledger.in_flight
    logits = _logits_bytes(scenario, batch)
    forward = kept + casts + max(inputs, logits)
    return _Dynamic(activations=kept, logits=logits, working=max(working, inputs), casts=casts, forward=forward)


def saved_bytes(unit: UnitSums, batch: Batch) -> float:
    """Bytes that one copy of `unit` keeps for backward over `batch`."""
    per_token = unit.saved_bytes + unit.saved_bytes_per_key * batch.seq_len
    return batch.tokens * per_token + batch.samples * unit.saved_bytes_per_sample


def _logits_bytes(scenario: Scenario, batch: Batch) -> float:
    rows = batch.tokens if scenario.task == "causal_lm" else batch.samples
    ledger = scenario.ledger
    return loss(scenario.config.loss).logits_bytes(rows, ledger.num_outputs, ledger.compute_bytes)


def _evaluation_bytes(scenario: Scenario) -> float:
    """Forward without saved tensors: one unit's tensors, and the logits with their fp32 copy."""
    batch = fullest_batch(scenario)
    unit_bytes = max(saved_bytes(unit, batch) for unit in scenario.sums.units)
    rows = batch.tokens if scenario.task == "causal_lm" else batch.samples
    logits = rows * scenario.ledger.num_outputs * (scenario.ledger.compute_bytes + 4.0)
    return max(unit_bytes, min(logits, _logits_bytes(scenario, batch)))


def _slack(scenario: Scenario, held: float, dynamic: _Dynamic) -> float:
    """Reserved minus allocated: a share of what stays, and larger shares of what comes and goes."""
    shares = scenario.efficiency.constants
    coming = dynamic.activations + dynamic.temp
    if scenario.cluster.device.kind == "cpu":
        return shares["slack_cpu"] * (coming + dynamic.logits)
    uneven = scenario.lengths.maximum > 1.05 * scenario.lengths.mean and not scenario.is_image
    growth = shares["slack_uneven"] if uneven else 1.0
    return (
        shares["slack_held"] * held
        + growth * shares["slack_dynamic"] * coming
        + growth * shares["slack_logits"] * dynamic.logits
    )


def _interval(scenario: Scenario, terms: dict[str, int], outside: FrameworkBytes) -> tuple[float, float]:
    """5 % and 95 % points: independent relative spreads of state, of what comes and goes, and of the context."""
    spread = scenario.efficiency.constants
    if scenario.correction:
        half = spread["spread_calibrated"] * sum(terms.values())
        return sum(terms.values()) - half, sum(terms.values()) + half
    held = terms["params"] + terms["grads"] + terms["optimizer_states"]
    coming = terms["activations"] + terms["logits"] + terms["temp_buffers"] + terms["fragmentation"]
    context = 0.0 if outside.source is Source.MEASURED else spread["spread_context"] * terms["framework"]
    half = _Z90 * sqrt(
        (spread["spread_held"] * held) ** 2
        + (spread["spread_dynamic"] * coming) ** 2
        + (spread["spread_dynamic"] * terms["comm_buffers"]) ** 2
        + context**2
    )
    expected = sum(terms.values())
    return max(expected - half, 0.6 * expected), expected + half
