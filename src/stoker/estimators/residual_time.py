"""What one measured step of a stack says about its other runs: the residual, by the class of work that can carry it.

A step's time is made of classes of work (large products, attention, element-wise bytes, launches, the rest), and runs
of one stack differ in how much of each they have: a small model moves bytes, a large one multiplies. Each class has a
log factor with a prior spread, and what one run's ratio says about another run is the posterior mean of a linear
model: their shared classes, weighed by how uncertain each is (docs/math.md, section 5).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import exp, log

from stoker.core.efficiency import Efficiency, SpeedShares
from stoker.estimators.scenario import Scenario
from stoker.estimators.step_time import estimate_step

# How far a stack's time in a class is off from what is expected of it, one sigma of the logarithm: how products run
# is known best; element-wise kernels, launches and exchanges are a program's own
_PRIORS = {"products": 0.10, "attention": 0.10, "bytes": 0.40, "launches": 0.40, "rest": 0.40}
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
    measured_over_predicted: float, run_shares: Mapping[str, float], other_shares: Mapping[str, float]
) -> float:
    """Factor on another run's time: the posterior mean, given one run's ratio and both runs' shares."""
    common = sum(_PRIORS[name] ** 2 * run_shares[name] * other_shares[name] for name in _PRIORS)
    own = sum((_PRIORS[name] * run_shares[name]) ** 2 for name in _PRIORS)
    return exp(log(measured_over_predicted) * common / (own + _RUN_FRAC**2))


def _with_speeds(efficiency: Efficiency, change: Callable[[SpeedShares], SpeedShares]) -> Efficiency:
    return replace(efficiency, speeds=tuple(change(row) for row in efficiency.speeds))
