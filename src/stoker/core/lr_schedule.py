"""Optimizer steps of a run and the learning rate of each, counted in optimizer steps; planning and running share it.

Nothing here knows ranks or micro-batches: the curve is the user's, and no number of GPUs bends it (case 19).
"""

import math
from collections.abc import Callable
from typing import Literal

Schedule = Literal["linear", "cosine", "constant"]


def steps_per_epoch(num_samples: int, global_batch_size: int) -> int:
    """Optimizer steps of one pass: the last one may hold fewer samples, none is dropped."""
    return max(1, -(-num_samples // global_batch_size))


def total_steps(num_samples: int, global_batch_size: int, epochs: float, max_steps: int | None = None) -> int:
    """Optimizer steps of the whole run, at least one; a fractional epoch is rounded up to a whole step."""
    steps = max(1, math.ceil(epochs * steps_per_epoch(num_samples, global_batch_size) - 1e-9))
    return min(steps, max_steps) if max_steps else steps


def warmup_steps(total: int, warmup_frac: float) -> int:
    """Steps whose learning rate still rises."""
    return math.ceil(total * warmup_frac - 1e-9)


def lr_factor(step: int, total: int, warmup: int, kind: Schedule) -> float:
    """Share of the peak learning rate after `step` updates: what update number `step` + 1 uses.

    Rises as (step + 1) / (warmup + 1), so the first update already learns, then falls to 0 at `total`
    (linear, cosine) or stays (constant). Without warm-up, linear gives 0.5 at total / 2 and 0 at total (case 19).
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if kind == "constant":
        return 1.0
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return 1.0 - progress if kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))


def schedule_of(total: int, warmup_frac: float, kind: Schedule) -> Callable[[int], float]:
    """`lr_factor` with the run's constants filled in: updates made so far -> share of the peak rate."""
    warmup = warmup_steps(total, warmup_frac)
    return lambda step: lr_factor(step, total, warmup, kind)
