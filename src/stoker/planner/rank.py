"""The order of candidates: those that surely fit first, then by the goal (cost or time), ties settled by name.

A stale price competes with the top of its interval, so it leads only where it would even then (case 44).
A candidate without a price cannot be the cheapest: under `minimise: cost` it comes after those that have one, except
where none has one (this machine), and then time decides.
"""

from collections.abc import Sequence
from dataclasses import replace

from stoker.core.job import Job
from stoker.core.plan import Candidate
from stoker.planner.evaluate import FIT_PROBABILITY


def rank(job: Job, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """`candidates` in order, ranks from 1."""
    priced = any(candidate.cost is not None for candidate in candidates)
    by_cost = job.goal.minimise == "cost" and priced
    ordered = sorted(candidates, key=lambda candidate: _order(candidate, by_cost=by_cost))
    return tuple(replace(candidate, rank=number) for number, candidate in enumerate(ordered, 1))


def is_sure(candidate: Candidate) -> bool:
    """Whether it fits with the stated probability."""
    return candidate.memory.fit_probability >= FIT_PROBABILITY


def trusted_usd(candidate: Candidate) -> float:
    """The cost that ranking uses: expected, or at the high end of a stale price; infinite without a price.

    `high_usd` is the longest time at the highest price; only the price's part is a matter of age.
    """
    cost, time = candidate.cost, candidate.time
    if cost is None:
        return float("inf")
    return cost.high_usd * time.total_s / time.high_s if cost.is_stale else cost.total_usd


def _order(candidate: Candidate, *, by_cost: bool) -> tuple[object, ...]:
    cost = trusted_usd(candidate)
    seconds = candidate.time.total_s
    goal = (round(cost, 4), round(seconds, 3)) if by_cost else (round(seconds, 3), round(cost, 4))
    fit = 0 if is_sure(candidate) else 1 if candidate.fits else 2
    return (fit, *goal, candidate.cluster.num_gpus, candidate.cluster.device.name)
