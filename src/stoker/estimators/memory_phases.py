"""What is alive at each phase of a step, in allocated bytes on one rank (docs/math.md, section 1).

Backward has two high points. At the loss the logits and their gradients stand on all that forward kept; in a block,
its own tensors (made again under recompute) and their gradients do, and of the logits only what the model's output
object still holds. Whichever is higher counts, and the lower one tells the allocator what it has to hold besides.
"""

from dataclasses import dataclass

from stoker.core.ledger import Ledger
from stoker.estimators.ledger_sums import UnitSums
from stoker.estimators.scenario import Batch, Scenario, fullest_batch
from stoker.techniques.loss import loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamic:
    """What comes and goes within a step, bytes.

    `kept`: from forward to backward. `casts`: narrow weights of autocast. `logits`: at the loss's own peak, and
    `loss_forward` of it before backward, `loss_temp` beside it (gradient of the head's weight in a fused kernel). `held`: logits that outlive the loss.
    `working`: the largest block's own tensors in backward; `forward`: in forward, nothing kept of them.
    `passing`: transients that stand at neither high point (a quantised weight's 16-bit form, a head's cast).
    """

    kept: float
    casts: float
    logits: float
    loss_forward: float
    loss_temp: float
    held: float
    working: float
    forward: float
    passing: float

    @property
    def at_loss(self) -> float:
        """Beyond what was kept, at the loss."""
        return self.logits + self.loss_temp

    @property
    def at_block(self) -> float:
        """Beyond what was kept, in the largest block."""
        return self.held + self.working

    @property
    def highest(self) -> float:
        """Everything at the higher of the two points."""
        return self.kept + self.casts + max(self.at_loss, self.at_block)


def dynamic_bytes(scenario: Scenario) -> Dynamic:
    """What comes and goes with the fullest batch of `scenario` (case 8)."""
    batch = fullest_batch(scenario)
    kept = working = forward = casts = passing = 0.0
    for unit in scenario.sums.units:
        casts += unit.repeats * unit.cast_bytes
        forward = max(forward, _forward_bytes(unit, batch, keeps=unit.in_backward and not unit.recomputed))
        passing = max(passing, unit.temp_bytes)
        if unit.in_backward:
            kept += _kept_bytes(unit, batch)
            working = max(working, _working_bytes(unit, batch) + unit.temp_bytes)
    logits, loss_forward, loss_temp, held = _loss_bytes(scenario, batch)
    return Dynamic(
        kept=kept * min(scenario.ledger.in_flight, scenario.config.gradient_accumulation_steps),
        casts=casts,
        logits=logits,
        loss_forward=loss_forward,
        loss_temp=loss_temp,
        held=held if scenario.stack.holds_logits else 0.0,
        working=working,
        forward=forward,
        passing=max(passing, _head_cast_bytes(scenario)),
    )


def saved_bytes(unit: UnitSums, batch: Batch) -> float:
    """Bytes that one copy of `unit` keeps for backward over `batch`."""
    per_token = unit.saved_bytes + unit.saved_bytes_per_key * batch.seq_len
    return batch.tokens * per_token + batch.samples * unit.saved_bytes_per_sample


def _kept_bytes(unit: UnitSums, batch: Batch) -> float:
    """From forward to backward, all copies: the tensors themselves, or the inputs of recomputed blocks."""
    if not unit.recomputed:
        return unit.repeats * saved_bytes(unit, batch)
    on_device = min(unit.repeats, 2) if unit.host_bytes else unit.repeats
    return batch.tokens * (on_device * unit.input_bytes + unit.repeats * unit.kept_bytes)


def _working_bytes(unit: UnitSums, batch: Batch) -> float:
    """Of one copy in backward, beyond what was kept: what recompute makes again, and gradients that come and go.

    In the feed-forward half two gradients of its widest tensor; in attention, by then without the feed-forward's
    tensors, the gradients of eager scores. The gradient of the block's output and input stand throughout.
    """
    outer = 2.0 * unit.input_bytes * batch.tokens
    scores = batch.tokens * unit.scores_temp_bytes * batch.seq_len
    inner = 2.0 * unit.widest_bytes * batch.tokens
    if not unit.recomputed:
        return outer + max(inner, scores)
    made = max(saved_bytes(unit, batch) - batch.tokens * unit.kept_bytes, 0.0)
    return outer + max(made + inner, made - batch.tokens * unit.inner_bytes + scores)


def _forward_bytes(unit: UnitSums, batch: Batch, *, keeps: bool) -> float:
    """Of one copy in forward beyond what is kept: a tensor in and one out where it is, else at most all its tensors."""
    own = batch.tokens * unit.widest_bytes if keeps else saved_bytes(unit, batch)
    return own + 2.0 * unit.input_bytes * batch.tokens + unit.temp_bytes


def _loss_bytes(scenario: Scenario, batch: Batch) -> tuple[float, float, float, float]:
    """(logits and their gradients at the peak, those of forward, transients of the head's size, logits that stay)."""
    technique = loss(scenario.config.loss)
    rows = batch.tokens if scenario.task == "causal_lm" else batch.samples
    outputs, width = scenario.ledger.num_outputs, logit_bytes(scenario)
    head = next((unit for unit in scenario.sums.units if unit.kind == "head"), None)
    learns = head is not None and head.learning_frac > 0.0
    temp = technique.head_bytes(head.weight_elements, scenario.ledger.compute_bytes) if head and learns else 0.0
    parts = technique.logits_terms(rows, outputs, width)
    whole = sum(parts.values())
    return (
        whole,
        whole - parts.get("loss_gradient", 0.0),
        temp if scenario.task == "causal_lm" else 0.0,
        technique.held_bytes(rows, outputs, width),
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
    gradients = sums.grads_bytes + sums.accumulator_bytes
    standing = gradients if holds_gradients(scenario) else 0.0
    around = comm_buffers + workspace
    beside = dynamic.highest if standing else max(dynamic.highest, gradients + dynamic.working)
    return {
        "load": sums.params_bytes,
        "forward": state
        + standing
        + dynamic.kept
        + dynamic.casts
        + max(dynamic.forward, dynamic.loss_forward)
        + around,
        "backward": state + standing + beside + around,
        "optimizer": state + gradients + sums.step_temp_bytes + around,
        "evaluation": state + _evaluation_bytes(scenario, dynamic) + around,
        "save": state,
    }


def holds_gradients(scenario: Scenario) -> bool:
    """Whether gradients stand beside the activations, or appear as those die.

    They stand when micro-batches accumulate, when DDP views them in its buckets, when an fp32 master makes them a
    buffer of its own, or when the program zeroes them instead of dropping them.
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
    unit = max(_forward_bytes(unit, batch, keeps=False) for unit in scenario.sums.units)
    return max(unit, min(logits, dynamic.logits))
