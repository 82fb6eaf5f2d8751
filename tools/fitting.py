"""Gauss-Newton on residuals of logarithms, with priors on the parameters and bounded influence of outliers.

Every parameter is positive and moves in its logarithm. The Jacobian is numeric; a fold without some rows is one step
of the same equations from the optimum (`refit_without`), which costs no new evaluation of the model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

_STEP = 0.02  # of a logarithm, for the numeric Jacobian
_HUBER = 2.0  # sigmas beyond which a row's pull no longer grows
_LONGEST = 0.4  # of a logarithm that one round may move a parameter


@dataclass(frozen=True, slots=True)
class Parameter:
    """A positive constant: its prior value, the prior's sigma in the logarithm, and a ceiling or None."""

    name: str
    prior: float
    sigma: float
    ceiling: float | None


@dataclass(frozen=True, slots=True)
class Problem:
    """`residuals`: log(predicted / measured) of every row, from values by name. `sigma`: of one row."""

    parameters: Sequence[Parameter]
    weights: np.ndarray
    sigma: float
    residuals: Callable[[dict[str, float]], np.ndarray]

    def named(self, logs: np.ndarray) -> dict[str, float]:
        """Values by name."""
        return {p.name: exp(value) for p, value in zip(self.parameters, logs, strict=True)}


@dataclass(frozen=True, slots=True)
class Fit:
    """The optimum: logarithms, residuals and Jacobian there."""

    logs: np.ndarray
    residuals: np.ndarray
    jacobian: np.ndarray

    @property
    def values(self) -> list[float]:
        return [exp(value) for value in self.logs]


def fit_least_squares(problem: Problem, *, rounds: int) -> Fit:
    """`rounds` damped steps from the priors."""
    logs = np.array([log(parameter.prior) for parameter in problem.parameters])
    residuals = problem.residuals(problem.named(logs))
    cost = _cost(problem, logs, residuals)
    jacobian = _jacobian(problem, logs, residuals)
    for _ in range(rounds):
        step = _solve(problem, logs, residuals, jacobian, np.ones(len(residuals)))
        for shrink in (1.0, 0.5, 0.2):
            trial = _clipped(problem, logs + shrink * step)
            found = problem.residuals(problem.named(trial))
            if _cost(problem, trial, found) < cost:
                break
        else:
            break
        better = _cost(problem, trial, found)
        logs, residuals, gain, cost = trial, found, cost - better, better
        jacobian = _jacobian(problem, logs, residuals)
        if gain < 1e-3 * cost:
            break
    return Fit(logs, residuals, jacobian)


def refit_without(problem: Problem, fit: Fit, members: Sequence[int]) -> dict[str, float]:
    """Values without the rows `members`: two steps of the equations, linear around the optimum."""
    kept = np.ones(len(fit.residuals))
    kept[list(members)] = 0.0
    logs, residuals = fit.logs.copy(), fit.residuals.copy()
    for _ in range(4):
        step = _solve(problem, logs, residuals, fit.jacobian, kept)
        moved = _clipped(problem, logs + step) - logs
        logs, residuals = logs + moved, residuals + fit.jacobian @ moved
    return problem.named(logs)


def _solve(
    problem: Problem, logs: np.ndarray, residuals: np.ndarray, jacobian: np.ndarray, kept: np.ndarray
) -> np.ndarray:
    pull = np.minimum(1.0, _HUBER * problem.sigma / np.maximum(np.abs(residuals), 1e-9))
    weights = problem.weights * kept * pull / problem.sigma**2
    priors = np.array([1.0 / parameter.sigma**2 for parameter in problem.parameters])
    away = np.array([log(parameter.prior) for parameter in problem.parameters]) - logs
    normal = jacobian.T @ (weights[:, None] * jacobian) + np.diag(priors)
    gradient = -jacobian.T @ (weights * residuals) + priors * away
    step: np.ndarray = np.linalg.solve(normal, gradient)
    return np.clip(step, -_LONGEST, _LONGEST)


def _cost(problem: Problem, logs: np.ndarray, residuals: np.ndarray) -> float:
    scaled = np.abs(residuals) / problem.sigma
    rows = np.where(scaled < _HUBER, 0.5 * scaled**2, _HUBER * (scaled - 0.5 * _HUBER))
    away = [(value - log(p.prior)) / p.sigma for p, value in zip(problem.parameters, logs, strict=True)]
    return float(np.sum(problem.weights * rows) + 0.5 * np.sum(np.square(away)))


def _jacobian(problem: Problem, logs: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    columns = []
    for index in range(len(logs)):
        moved = logs.copy()
        moved[index] += _STEP
        columns.append((problem.residuals(problem.named(moved)) - residuals) / _STEP)
    return np.stack(columns, axis=1)


def _clipped(problem: Problem, logs: np.ndarray) -> np.ndarray:
    ceilings = np.array([log(p.ceiling) if p.ceiling else np.inf for p in problem.parameters])
    clipped: np.ndarray = np.minimum(logs, ceilings)
    return clipped
