"""What measured runs of a stack say about its other runs: the residual, split over the parts that can carry it.

A stack's memory is predicted as held + dynamic + logits + slack + context bytes; what a program holds beside them
(workspaces, buckets, copies) is a sixth part, fixed in bytes. A run measures one or more sums of these (allocated;
reserved; a process). Each part has a factor around 1 with a prior spread, and the readings move the factors as far as
the spreads allow: the posterior mean of a linear model with Gaussian priors, in closed form. So state, which is
counted, hardly moves; a residual of a small run is mostly fixed, one of a large run mostly what comes and goes.

What it says about another run depends on what they share: another model takes most of it, another variant of the
program (sharding, recomputation, kernels) only the context and the allocator's slack (docs/math.md, section 5).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from stoker.core.estimate import MemoryEstimate

HELD = ("params", "grads", "optimizer_states", "masters")
PARTS = ("held", "dynamic", "logits", "slack", "context")
FIXED = "fixed_bytes"  # among the factors: not a factor but bytes
_PART_OF = {  # the rest: dynamic
    **dict.fromkeys(HELD, "held"),
    "logits": "logits",
    "fragmentation": "slack",
    "framework": "context",
}
_PRIORS = {"held": 0.02, "dynamic": 0.50, "logits": 0.50, "slack": 0.20, "context": 0.50}  # one sigma, of the part
_FIXED_BYTES = 1e9  # one sigma of what a program holds beside the parts
_RUN_FRAC = 0.03  # what runs of one stack scatter by in memory, of the reading
_RUN_SLACK_FRAC = 0.40  # and in slack, of the slack: blocks fragment differently in every run
_OTHER_MODEL_FRAC = 0.85  # of what a run says about state, activations and logits holds for another model
_ANY_VARIANT = ("slack", "context")  # the allocator and the driver do not know what a program does
_LEAST_FRAC = 0.05  # of a part, whatever was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Measured peaks of one run in bytes; None where it was not read. `process`: as nvidia-smi shows it."""

    allocated_bytes: float | None = None
    reserved_bytes: float | None = None
    process_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBytes:
    """A memory estimate by what can be wrong with it, in bytes; the five sum to the process."""

    held: float
    dynamic: float
    logits: float
    slack: float
    context: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCorrection:
    """Factors on the parts of a memory estimate of the same stack, and bytes beside them.

    `spread`: what is left of each prior (one sigma; of `fixed_bytes` in bytes).
    """

    held: float = 1.0
    dynamic: float = 1.0
    logits: float = 1.0
    slack: float = 1.0
    context: float = 1.0
    fixed_bytes: float = 0.0
    spread: Mapping[str, float]

    @property
    def factors(self) -> dict[str, float]:
        """Part -> factor, and `fixed_bytes`."""
        return {part: getattr(self, part) for part in (*PARTS, FIXED)}


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
    logits = min(float(estimate.terms.get("logits", 0)), allocated - held)
    slack = max(estimate.expected_bytes - context - allocated, 0.0)
    return PartBytes(held=held, dynamic=allocated - held - logits, logits=logits, slack=slack, context=context)


def correct(predicted: MemoryEstimate, measured: Reading) -> MemoryCorrection:
    """The correction that one run of a stack gives for the others."""
    return correct_all([(predicted, measured)])


def correct_all(runs: Iterable[tuple[MemoryEstimate, Reading]]) -> MemoryCorrection:
    """The correction of all `runs` of one stack together; without any, all factors are one."""
    equations = [equation for predicted, measured in runs for equation in _equations(parts_of(predicted), measured)]
    priors = [*(_PRIORS[part] for part in PARTS), _FIXED_BYTES]
    size = len(priors)
    precision = [[1.0 / priors[row] ** 2 if row == col else 0.0 for col in range(size)] for row in range(size)]
    pull = [0.0] * size
    for equation in equations:
        for row in range(size):
            pull[row] += equation.weights[row] * equation.residual / equation.noise**2
            for col in range(size):
                precision[row][col] += equation.weights[row] * equation.weights[col] / equation.noise**2
    covariance = _inverse(precision)
    shift = [sum(covariance[row][col] * pull[col] for col in range(size)) for row in range(size)]
    factors = {part: max(1.0 + shift[index], _LEAST_FRAC) for index, part in enumerate(PARTS)}
    names = (*PARTS, FIXED)
    return MemoryCorrection(
        **factors,
        fixed_bytes=shift[-1],
        spread={name: sqrt(max(covariance[i][i], 0.0)) for i, name in enumerate(names)},
    )


def transferred(factors: Mapping[str, float], *, same_model: bool, same_variant: bool) -> dict[str, float]:
    """What `factors` of one run say about another of its stack.

    `same_variant`: both shard, recompute and multiply with the same code; else only slack and context are shared.
    """
    share = 1.0 if same_model else _OTHER_MODEL_FRAC
    shares = {part: 1.0 if part in _ANY_VARIANT else share * same_variant for part in PARTS}
    found = {part: 1.0 + shares[part] * (factors.get(part, 1.0) - 1.0) for part in PARTS}
    return {**found, FIXED: factors.get(FIXED, 0.0) if same_variant else 0.0}


def corrected(estimate: MemoryEstimate, factors: Mapping[str, float]) -> MemoryEstimate:
    """`estimate` with its parts multiplied; its interval keeps its width, because another model's run taught this.

    Fixed bytes come and go with the activations, of which at least a share stays.
    """
    parts = parts_of(estimate)
    scale = {part: factors.get(part, 1.0) for part in PARTS}
    if parts.dynamic > 0.0:
        dynamic = parts.dynamic * scale["dynamic"] + factors.get(FIXED, 0.0)
        scale["dynamic"] = max(dynamic / parts.dynamic, _LEAST_FRAC)
    allocated = sum(getattr(parts, part) * scale[part] for part in ("held", "dynamic", "logits"))
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
        correction_parts=scale,
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


def _equations(parts: PartBytes, measured: Reading) -> list[_Equation]:
    """One equation a reading, of what it adds to the reading before: readings of one run share that run's scatter.

    What a program holds beside the parts is in the first of them, whichever that is.
    """
    added = (
        (measured.allocated_bytes, (parts.held, parts.dynamic, parts.logits, 0.0, 0.0)),
        (measured.reserved_bytes, (0.0, 0.0, 0.0, parts.slack, 0.0)),
        (measured.process_bytes, (0.0, 0.0, 0.0, 0.0, parts.context)),
    )
    nothing = (0.0,) * len(PARTS)
    found: list[_Equation] = []
    before, weights = 0.0, nothing
    for value, more in added:
        weights = tuple(known + new for known, new in zip(weights, more, strict=True))
        if value:
            slack = weights[PARTS.index("slack")]
            own = _RUN_FRAC * (sum(weights) - slack) + _RUN_SLACK_FRAC * slack
            beside = 0.0 if found else 1.0
            found.append(
                _Equation(
                    weights=tuple(weight / value for weight in (*weights, beside)),
                    residual=(value - before - sum(weights)) / value,
                    noise=max(own / value, 1e-4),
                )
            )
            before, weights = value, nothing
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
