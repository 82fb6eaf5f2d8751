"""What one measured step of a stack says about its other runs: the residual, by the class of work that can carry it.

A step's time is made of classes of work (large products, attention, element-wise bytes, launches, the rest), and runs
of one stack differ in how much of each they have: a small model moves bytes, a large one multiplies. Each class has a
log factor with a prior spread, so has the whole step, and so has each model; what one run's ratio says about another
run is the posterior mean of a linear model: what both share, weighed by how uncertain it is. A program whose factor
was fitted to its own runs is off by less, so one of them says less (docs/math.md, section 5).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import exp, log

from stoker.core.efficiency import Efficiency, SpeedShares
from stoker.estimators.scenario import Scenario
from stoker.estimators.step_time import estimate_step

# How far a stack's time in a class is off from what is expected of it, one sigma of the logarithm: how products run
# and launches are known best; element-wise kernels and exchanges are a program's own
_PRIORS = {"products": 0.20, "attention": 0.10, "bytes": 0.60, "launches": 0.20, "rest": 0.60}
_WHOLE = 0.10  # and in the step as a whole: clocks, what nobody counts
_FITTED_FRAC = 0.30  # of both, where the program's own factor was fitted
_MODEL = 0.10  # how far one model is off in all runs of a stack
_RUN_FRAC = 0.10  # what single runs scatter by around their stack: shapes, lengths, clocks
_SLOWER = 1.05  # of one class, to see how much of the step it is

_CHANGES: Mapping[str, Callable[[SpeedShares], SpeedShares]] = {
    "products": lambda row: replace(row, matmul_frac=row.matmul_frac / _SLOWER),
    "attention": lambda row: replace(row, attention_frac=row.attention_frac / _SLOWER),
    "bytes": lambda row: replace(row, memory_frac=row.memory_frac / _SLOWER),
    "launches": lambda row: replace(
        row, host_s_per_kernel=row.host_s_per_kernel * _SLOWER, kernel_s=row.kernel_s * _SLOWER
    ),
}


def time_shares(scenario: Scenario) -> dict[str, float]:
    """Class of work -> share of the step that grows with it; what is left (communication, fixed times) is `rest`."""
    before_s = estimate_step(scenario).step_s

    def share(change: Callable[[SpeedShares], SpeedShares]) -> float:
        slower = _with_speeds(scenario.efficiency, change)
        return max(log(estimate_step(replace(scenario, efficiency=slower)).step_s / before_s) / log(_SLOWER), 0.0)

    shares = {name: share(change) for name, change in _CHANGES.items()}
    return {**shares, "rest": max(1.0 - sum(shares.values()), 0.0)}


def shared_factor(
    measured_over_predicted: float,
    run_shares: Mapping[str, float],
    other_shares: Mapping[str, float],
    *,
    same_model: bool,
    fitted: bool,
) -> float:
    """Factor on another run's time: the posterior mean, given one run's ratio and both runs' shares.

    `fitted`: the program's `time_factor` comes from runs of its own.
    """
    share = _FITTED_FRAC**2 if fitted else 1.0

    def covariance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
        return share * (_WHOLE**2 + sum(spread**2 * one[name] * other[name] for name, spread in _PRIORS.items()))

    common = covariance(run_shares, other_shares) + (_MODEL**2 if same_model else 0.0)
    own = covariance(run_shares, run_shares) + _MODEL**2 + _RUN_FRAC**2
    return exp(log(measured_over_predicted) * common / own)


def _with_speeds(efficiency: Efficiency, change: Callable[[SpeedShares], SpeedShares]) -> Efficiency:
    return replace(efficiency, speeds=tuple(change(row) for row in efficiency.speeds))
