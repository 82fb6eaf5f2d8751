"""What measured runs of a stack say about its other runs: the residual, split over the parts that can carry it.

A stack's memory is predicted as held + dynamic + slack + context bytes. A run measures one or more sums of these
(allocated; reserved; a process). Each part has a factor (context: an offset in bytes) around 1 with a prior spread,
and the readings move the factors as far as the spreads allow: the posterior mean of a linear model with Gaussian
priors, solved in closed form. So state, which is counted, hardly moves; what comes and goes takes most; and a constant
offset stays one. One factor on the total would instead scale a context with the batch (docs/math.md, section 5).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from stoker.core.estimate import MemoryEstimate

HELD = ("params", "grads", "optimizer_states", "masters")
PARTS = ("held", "dynamic", "slack", "context")
_PRIORS = {"held": 0.03, "dynamic": 0.30, "slack": 0.60, "context": 0.5}
_NOISE_FRAC = 0.005  # of a reading: the allocator rounds, steps differ
_SLACK_NOISE = 0.4  # of the slack: how blocks fragment differs from run to run, so one run tells little about it
_Z90 = 1.6449


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Measured peaks of one run in bytes; None where it was not read. `process`: as nvidia-smi shows it."""

    allocated_bytes: float | None = None
    reserved_bytes: float | None = None
    process_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBytes:
    """A memory estimate by what can be wrong with it, in bytes; the four sum to the process."""

    held: float
    dynamic: float
    slack: float
    context: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCorrection:
    """Factors on the parts of a memory estimate of the same stack; `spread`: what is left of each prior (one sigma)."""

    held: float = 1.0
    dynamic: float = 1.0
    slack: float = 1.0
    context: float = 1.0
    spread: Mapping[str, float]


def parts_of(estimate: MemoryEstimate) -> PartBytes:
    """`estimate` by parts. Allocated beyond the state comes and goes; reserved beyond allocated is slack."""
    context = float(estimate.terms.get("framework", 0))
    held = float(sum(estimate.terms.get(name, 0) for name in HELD))
    allocated = float(estimate.peak_allocated_bytes)
    held = min(held, allocated)
    slack = max(estimate.expected_bytes - context - allocated, 0.0)
    return PartBytes(held=held, dynamic=allocated - held, slack=slack, context=context)


def correct(predicted: MemoryEstimate, measured: Reading) -> MemoryCorrection:
    """The correction that one run of a stack gives for the others."""
    return correct_all([(predicted, measured)])


def correct_all(runs: Iterable[tuple[MemoryEstimate, Reading]]) -> MemoryCorrection:
    """The correction of all `runs` of one stack together; without any, the priors."""
    precision = [
        [1.0 / _PRIORS[part] ** 2 if row == col else 0.0 for col, part in enumerate(PARTS)] for row in range(4)
    ]
    pull = [0.0] * 4
    for predicted, measured in runs:
        for weights, residual in _equations(parts_of(predicted), measured):
            for row in range(4):
                pull[row] += weights[row] * residual
                for col in range(4):
                    precision[row][col] += weights[row] * weights[col]
    covariance = _inverse(precision)
    shift = [sum(covariance[row][col] * pull[col] for col in range(4)) for row in range(4)]
    factors = {part: max(1.0 + shift[index], 0.05) for index, part in enumerate(PARTS)}
    return MemoryCorrection(**factors, spread={part: sqrt(max(covariance[i][i], 0.0)) for i, part in enumerate(PARTS)})


def _equations(parts: PartBytes, measured: Reading) -> list[tuple[list[float], float]]:
    """(weights of the parts' shifts, residual) of each reading, both in units of the reading's own noise."""
    held, dynamic, slack, context = parts.held, parts.dynamic, parts.slack, parts.context
    sums = (
        (measured.allocated_bytes, [held, dynamic, 0.0, 0.0], 0.0),
        (measured.reserved_bytes, [held, dynamic, slack, 0.0], _SLACK_NOISE * slack),
        (measured.process_bytes, [held, dynamic, slack, context], _SLACK_NOISE * slack),
    )
    result = []
    for value, weights, own_noise in sums:
        if value:
            noise = sqrt((_NOISE_FRAC * value) ** 2 + own_noise**2)
            result.append(([weight / noise for weight in weights], (value - sum(weights)) / noise))
    return result


def _inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """Inverse of a small positive definite matrix (Gauss-Jordan; its diagonal never vanishes)."""
    size = len(matrix)
    rows = [[*row, *(1.0 if i == j else 0.0 for j in range(size))] for i, row in enumerate(matrix)]
    for pivot in range(size):
        head = rows[pivot][pivot]
        rows[pivot] = [value / head for value in rows[pivot]]
        for other in range(size):
            if other != pivot:
                factor = rows[other][pivot]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[pivot], strict=True)]
    return [row[size:] for row in rows]
