"""What measured runs of a stack say about its other runs: the residual, split over the parts that can carry it.

A stack's memory is predicted as held + dynamic + slack + context bytes. A run measures one or more sums of these
(allocated; reserved; a process). Each part has a factor around 1 with a prior spread, and the readings move the factors
as far as the spreads allow: the posterior mean of a linear model with Gaussian priors, in closed form. So state, which
is counted, hardly moves; what comes and goes takes most; one factor on the total would scale a context with the batch.

Part of a residual is the run's own (its shape, the allocator's luck), the rest the stack's. How much is the stack's is
estimated from the residual itself: its square less the square of what single runs scatter by, at least none. So a
prediction that was right stays, and one that was far off moves nearly all the way (docs/math.md, section 5).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from stoker.core.estimate import MemoryEstimate

HELD = ("params", "grads", "optimizer_states", "masters")
PARTS = ("held", "dynamic", "slack", "context")
_PART_OF = {**dict.fromkeys(HELD, "held"), "fragmentation": "slack", "framework": "context"}  # the rest: dynamic
_PRIORS = {"held": 0.03, "dynamic": 0.30, "slack": 0.60, "context": 0.50}  # relative to each other
_RUN_FRAC = 0.04  # what runs of one stack scatter by in memory, of the reading
_RUN_SLACK_FRAC = 0.40  # and in slack, of the slack: blocks fragment differently in every run


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

    @property
    def factors(self) -> dict[str, float]:
        """Part -> factor."""
        return {"held": self.held, "dynamic": self.dynamic, "slack": self.slack, "context": self.context}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Equation:
    """One reading: its residual, what each part weighs in it, and the scatter of single runs, all over the reading."""

    weights: tuple[float, ...]
    residual: float
    noise: float


def parts_of(estimate: MemoryEstimate) -> PartBytes:
    """`estimate` by parts. Allocated beyond the state comes and goes; reserved beyond allocated is slack."""
    context = float(estimate.terms.get("framework", 0))
    allocated = float(estimate.peak_allocated_bytes)
    held = min(float(sum(estimate.terms.get(name, 0) for name in HELD)), allocated)
    slack = max(estimate.expected_bytes - context - allocated, 0.0)
    return PartBytes(held=held, dynamic=allocated - held, slack=slack, context=context)


def correct(predicted: MemoryEstimate, measured: Reading) -> MemoryCorrection:
    """The correction that one run of a stack gives for the others."""
    return correct_all([(predicted, measured)])


def correct_all(runs: Iterable[tuple[MemoryEstimate, Reading]]) -> MemoryCorrection:
    """The correction of all `runs` of one stack together; without any, all factors are one."""
    equations = [equation for predicted, measured in runs for equation in _equations(parts_of(predicted), measured)]
    priors = _scaled_priors(equations)
    size = len(PARTS)
    precision = [[1.0 / priors[row] ** 2 if row == col else 0.0 for col in range(size)] for row in range(size)]
    pull = [0.0] * size
    for equation in equations:
        for row in range(size):
            pull[row] += equation.weights[row] * equation.residual / equation.noise**2
            for col in range(size):
                precision[row][col] += equation.weights[row] * equation.weights[col] / equation.noise**2
    covariance = _inverse(precision)
    shift = [sum(covariance[row][col] * pull[col] for col in range(size)) for row in range(size)]
    factors = {part: max(1.0 + shift[index], 0.05) for index, part in enumerate(PARTS)}
    return MemoryCorrection(**factors, spread={part: sqrt(max(covariance[i][i], 0.0)) for i, part in enumerate(PARTS)})


def corrected(estimate: MemoryEstimate, factors: Mapping[str, float]) -> MemoryEstimate:
    """`estimate` with its parts multiplied; its interval keeps its width, because another model's run taught this."""
    parts = parts_of(estimate)
    scale = {part: factors.get(part, 1.0) for part in PARTS}
    allocated = parts.held * scale["held"] + parts.dynamic * scale["dynamic"]
    terms = {name: value * scale[_PART_OF.get(name, "dynamic")] for name, value in estimate.terms.items()}
    wanted = allocated + parts.slack * scale["slack"] + parts.context * scale["context"]
    terms["fragmentation"] = max(wanted - sum(v for name, v in terms.items() if name != "fragmentation"), 0.0)
    rounded = {name: round(value) for name, value in terms.items()}
    expected = sum(rounded.values())
    ratio = expected / estimate.expected_bytes if estimate.expected_bytes else 1.0
    return replace(
        estimate,
        low_bytes=round(estimate.low_bytes * ratio),
        expected_bytes=expected,
        high_bytes=round(estimate.high_bytes * ratio),
        peak_allocated_bytes=round(allocated),
        terms=rounded,
        phases={name: round(value * ratio) for name, value in estimate.phases.items()},
        tiers={**estimate.tiers, "hbm": expected},
        correction_parts=dict(scale),
    )


def uncorrected(estimate: MemoryEstimate) -> MemoryEstimate:
    """What the formulas alone had said: own runs are compared with that."""
    factor = estimate.correction_factor or 1.0
    plain = replace(
        estimate,
        expected_bytes=round(estimate.expected_bytes / factor),
        peak_allocated_bytes=round(estimate.peak_allocated_bytes / factor),
        terms={name: round(value / factor) for name, value in estimate.terms.items()},
        correction_factor=1.0,
    )
    if not estimate.correction_parts:
        return plain
    inverse = {part: 1.0 / value for part, value in estimate.correction_parts.items() if value}
    return replace(corrected(plain, inverse), correction_parts={})


def _scaled_priors(equations: Sequence[_Equation]) -> list[float]:
    """The priors, scaled so that together they expect the squared residuals less what single runs scatter by."""
    priors = [_PRIORS[part] for part in PARTS]
    if not equations:
        return priors
    excess = sum(max(eq.residual**2 - eq.noise**2, 0.0) for eq in equations) / len(equations)
    expected = sum(
        sum((prior * weight) ** 2 for prior, weight in zip(priors, eq.weights, strict=True)) for eq in equations
    ) / len(equations)
    scale = sqrt(excess / expected) if expected > 0.0 else 0.0
    return [max(prior * scale, 1e-6) for prior in priors]


def _equations(parts: PartBytes, measured: Reading) -> list[_Equation]:
    """One equation a reading, of what it adds to the reading before: readings of one run share that run's scatter."""
    added = (
        (measured.allocated_bytes, (parts.held, parts.dynamic, 0.0, 0.0)),
        (measured.reserved_bytes, (0.0, 0.0, parts.slack, 0.0)),
        (measured.process_bytes, (0.0, 0.0, 0.0, parts.context)),
    )
    found = []
    before = 0.0
    weights: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    for value, more in added:
        weights = tuple(known + new for known, new in zip(weights, more, strict=True))
        if value:
            own = _RUN_FRAC * (weights[0] + weights[1] + weights[3]) + _RUN_SLACK_FRAC * weights[2]
            found.append(
                _Equation(
                    weights=tuple(weight / value for weight in weights),
                    residual=(value - before - sum(weights)) / value,
                    noise=max(own / value, 1e-4),
                )
            )
            before, weights = value, (0.0, 0.0, 0.0, 0.0)
    return found


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
