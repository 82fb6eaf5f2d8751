"""What a unit of the model keeps and needs for one micro-batch, in bytes on one rank (docs/math.md, section 1)."""

from stoker.estimators.ledger_sums import UnitSums
from stoker.estimators.scenario import Batch, Scenario

_UNEVEN = 1.02  # longest over mean length from which some sample of a batch is padded


def saved_bytes(unit: UnitSums, batch: Batch, *, expanded: bool = False) -> float:
    """Bytes that one copy of `unit` keeps for backward over `batch`; `expanded`: keys and values of every head."""
    per_token = unit.saved_bytes + unit.saved_bytes_per_key * batch.seq_len
    if expanded:
        per_token += unit.expanded_bytes
    return batch.tokens * per_token + batch.samples * unit.saved_bytes_per_sample + unit.saved_bytes_once


def expands_keys(scenario: Scenario) -> bool:
    """Whether keys and values of grouped heads are copied for every query head.

    transformers does so for eager attention, and for sdpa where a padding mask rules out the kernel that knows groups.
    """
    config, lengths = scenario.config, scenario.lengths
    padded = config.micro_batch_size > 1 and lengths.maximum > _UNEVEN * lengths.mean
    return config.attention == "eager" or (config.attention == "sdpa" and padded)


def kept_bytes(unit: UnitSums, batch: Batch, *, expanded: bool) -> float:
    """From forward to backward, all copies: the tensors themselves, or the inputs of recomputed blocks."""
    if not unit.recomputed:
        return unit.repeats * saved_bytes(unit, batch, expanded=expanded)
    on_device = min(unit.repeats, 2) if unit.host_bytes else unit.repeats
    return batch.tokens * (on_device * unit.input_bytes + unit.repeats * unit.kept_bytes)


def working_bytes(unit: UnitSums, batch: Batch, *, expanded: bool) -> float:
    """Of one copy in backward, beyond what was kept: what recompute makes again, and gradients that come and go.

    In the feed-forward half two gradients of its widest tensor; in attention, by then without the feed-forward's
    tensors, the gradients of eager scores. The gradient of the block's output and input stand throughout.
    """
    outer = 2.0 * unit.input_bytes * batch.tokens + unit.temp_bytes
    scores = batch.tokens * unit.scores_temp_bytes * batch.seq_len
    inner = 2.0 * unit.widest_bytes * batch.tokens
    if not unit.recomputed:
        return outer + max(inner, scores)
    made = max(saved_bytes(unit, batch, expanded=expanded) - batch.tokens * unit.kept_bytes, 0.0)
    return outer + max(made + inner, made - batch.tokens * unit.inner_bytes + scores)


def forward_bytes(unit: UnitSums, batch: Batch, *, keeps: bool) -> float:
    """Of one copy in forward beyond what is kept: a tensor in and one out where it is, else at most all its tensors."""
    own = batch.tokens * unit.widest_bytes if keeps else saved_bytes(unit, batch)
    return own + 2.0 * unit.input_bytes * batch.tokens + unit.temp_bytes
