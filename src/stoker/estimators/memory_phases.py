"""What is alive at each phase of a step, in allocated bytes on one rank (docs/math.md, section 1).

Backward has two high points. At the loss the logits and their gradients stand on all that forward kept; in a block,
its own tensors (made again under recompute) and their gradients do, and of the logits only what the model's output
object still holds. Whichever is higher counts, and the lower one tells the allocator what it has to hold besides.
"""

from dataclasses import dataclass

from stoker.core.ledger import Ledger
from stoker.estimators.memory_units import expands_keys, forward_bytes, kept_bytes, working_bytes
from stoker.estimators.scenario import Batch, Scenario, fullest_batch
from stoker.techniques.loss import loss


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBytes:
    """At the loss: `peak` in its backward, `forward` before it, `temp` of the head's size, `held` that outlives it."""

    peak: float
    forward: float
    temp: float
    held: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamic:
    """What comes and goes within a step, bytes.

    `kept`: from forward to backward; `casts`: narrow weights of autocast. `working`: the largest unit's own tensors in
    backward; `at_unit`: the highest that such a unit stands on what is kept below it. `forward`: a unit's own in
    forward. `passing`: transients that stand at neither high point (a quantised weight's 16-bit form, a head's cast).
    """

    kept: float
    casts: float
    loss: LossBytes
    working: float
    at_unit: float
    forward: float
    passing: float

    @property
    def highest(self) -> float:
        """Everything at the higher of the two points."""
        return self.casts + max(self.kept + self.loss.peak + self.loss.temp, self.at_unit + self.loss.held)

    @property
    def lower_pool(self) -> float:
        """What the allocator keeps for the lower of the two points while the higher one runs."""
        at_loss = max(self.loss.peak + self.loss.temp - self.loss.held, 0.0)
        return min(at_loss, self.working) + self.passing


def dynamic_bytes(scenario: Scenario) -> Dynamic:
    """What comes and goes with the fullest batch of `scenario` (case 8)."""
    batch, expanded = fullest_batch(scenario), expands_keys(scenario)
    flights = min(scenario.ledger.in_flight, scenario.config.gradient_accumulation_steps)
    kept = working = forward = casts = passing = at_unit = 0.0
    largest = 0.0  # of the blocks, which may interleave
    for unit in scenario.sums.units:
        casts += unit.repeats * unit.cast_bytes
        forward = max(forward, forward_bytes(unit, batch, keeps=unit.in_backward and not unit.recomputed))
        passing = max(passing, unit.temp_bytes)
        if not unit.in_backward:
            continue
        kept += flights * kept_bytes(unit, batch, expanded=expanded)
        own = working_bytes(unit, batch, expanded=expanded)
        working = max(working, own)
        if unit.kind == "block":
            largest = max(largest, own)
        at_unit = max(at_unit, kept + (largest if unit.kind == "block" else own))
    return Dynamic(
        kept=kept,
        casts=casts,
        loss=_loss_bytes(scenario, batch),
        working=working,
        at_unit=at_unit,
        forward=forward,
        passing=max(passing, _head_cast_bytes(scenario)),
    )


def _loss_bytes(scenario: Scenario, batch: Batch) -> LossBytes:
    technique = loss(scenario.config.loss)
    rows = batch.tokens if scenario.task == "causal_lm" else batch.samples
    outputs, width = scenario.ledger.num_outputs, logit_bytes(scenario)
    head = next((unit for unit in scenario.sums.units if unit.kind == "head"), None)
    learns = head is not None and head.learning_frac > 0.0 and scenario.task == "causal_lm"
    parts = technique.logits_terms(rows, outputs, width)
    held = technique.held_bytes(rows, outputs, width)
    let_go = 0.0 if scenario.stack.holds_logits else held
    whole = sum(parts.values()) - let_go
    return LossBytes(
        peak=whole,
        forward=whole - parts.get("loss_gradient", 0.0),
        temp=technique.head_bytes(head.weight_elements, scenario.ledger.compute_bytes) if head and learns else 0.0,
        held=held - let_go,
    )


def logit_bytes(scenario: Scenario) -> float:
    """Bytes of one logit as the head gives it: fp32 where a quantised model runs in fp32 between its products."""
    return 4.0 if computes_wide(scenario.ledger) else scenario.ledger.compute_bytes


def computes_wide(ledger: Ledger) -> bool:
    """Whether the frozen, quantised base has everything else in fp32 (PEFT's prepare_model_for_kbit_training)."""
    return any(group.weights_quantised and group.unquantised_bytes_per_param == 4.0 for group in ledger.groups)


def _head_cast_bytes(scenario: Scenario) -> float:
    """The 16-bit copy of an fp32 head that autocast makes for its product and drops again."""
    if not computes_wide(scenario.ledger):
        return 0.0
    return max((2.0 * unit.weight_elements for unit in scenario.sums.units if unit.kind == "head"), default=0.0)


def phase_bytes(scenario: Scenario, dynamic: Dynamic, *, comm_buffers: float, workspace: float) -> dict[str, float]:
    """Allocated bytes at the fullest moment of each phase, context left out."""
    sums = scenario.sums
    state = sums.params_bytes + sums.optimizer_bytes
    gradients = gradient_bytes(scenario)
    standing = gradients if holds_gradients(scenario) else 0.0
    around = comm_buffers + workspace
    beside = dynamic.highest if standing else max(dynamic.highest, gradients + dynamic.working)
    forward = dynamic.kept + dynamic.casts + max(dynamic.forward, dynamic.loss.forward)
    return {
        "load": sums.params_bytes,
        "forward": state + standing + forward + around,
        "backward": state + standing + beside + around,
        "optimizer": state + gradients + _step_bytes(scenario) + dynamic.loss.held + around,
        "evaluation": state + _evaluation_bytes(scenario, dynamic) + around,
        "save": state,
    }


def gradient_bytes(scenario: Scenario) -> float:
    """All gradients and their fp32 sums; where the step is taken in backward, those of the largest unit alone."""
    sums = scenario.sums
    if not scenario.stack.steps_in_backward:
        return sums.grads_bytes + sums.accumulator_bytes
    return max(g.trainable * g.grad_bytes_per_param / g.grad_shards for g in scenario.ledger.groups)


def _step_bytes(scenario: Scenario) -> float:
    """Transient of the optimizer's step: its own, or of torch's multi-tensor AdamW the root of one moment."""
    if not scenario.stack.foreach_step or scenario.optimizer != "adamw":
        return scenario.sums.step_temp_bytes
    groups = scenario.ledger.groups
    masters = sum(g.repeats * g.base_trainable * g.master_bytes_per_param / g.state_shards for g in groups)
    return max(scenario.sums.step_temp_bytes, (scenario.sums.optimizer_bytes - masters) / 2.0)


def holds_gradients(scenario: Scenario) -> bool:
    """Whether gradients stand beside the activations, or appear as those die.

    They stand when micro-batches accumulate, when DDP views them in its buckets, or when the program zeroes them
    instead of dropping them. With fp32 masters they are counted as standing too: an upper bound (our engine drops
    them, benchmarks/LOG.md), kept because issue 1 states its golden figure that way.
    """
    config = scenario.config
    masters = any(g.master_bytes_per_param > 0 and g.base_trainable > 0 for g in scenario.ledger.groups)
    several = config.gradient_accumulation_steps > 1 or config.parallel.dp_replicate > 1
    return masters or several or scenario.stack.keeps_grads


def _evaluation_bytes(scenario: Scenario, dynamic: Dynamic) -> float:
    """Forward without saved tensors: one unit's tensors, and the logits with their fp32 copy."""
    batch = fullest_batch(scenario)
    rows = batch.tokens if scenario.task == "causal_lm" else batch.samples
    logits = rows * scenario.ledger.num_outputs * (scenario.ledger.compute_bytes + 4.0)
    unit = max((forward_bytes(unit, batch, keeps=False) for unit in scenario.sums.units), default=0.0)
    return max(unit, min(logits, dynamic.loss.peak))
