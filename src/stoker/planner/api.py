"""make_plan: job, data profile, model, prices and efficiency in; ranked candidates, rejections and reasons out.

A pure function: no file, network or clock (`today` is given), so the same inputs give the same plan.
"""

import datetime
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stoker.catalogue.freshness import freshness
from stoker.catalogue.links import node_fabric
from stoker.catalogue.offers import check_listed, matching_offers
from stoker.catalogue.provider_facts import provider
from stoker.core.efficiency import Efficiency
from stoker.core.estimate import CostEstimate, TimeEstimate
from stoker.core.hardware import Cluster
from stoker.core.job import Job
from stoker.core.ledger import ModelArch
from stoker.core.offer import Offer, OffersSnapshot
from stoker.core.plan import Candidate, Plan, Rejection, ResolvedModel
from stoker.core.profile import DataProfile
from stoker.estimators.cost import estimate_cost
from stoker.estimators.total_time import with_restarts
from stoker.planner.constraints import memory_rejection, reject_after, reject_before
from stoker.planner.evaluate import Evaluator
from stoker.planner.explain import (
    order_note,
    scaling_note,
    smaller_gpu,
    stale_note,
    summarise,
    what_would_fit,
    with_reasons,
)
from stoker.planner.notes import beside_experts_note, experts_note, flash_note, planned_note, single_note
from stoker.planner.rank import is_sure, rank
from stoker.planner.space import clusters
from stoker.techniques.packages import package_note

if TYPE_CHECKING:
    from stoker.core.explanation import Lever

_OFFERS_SHOWN = 8


def make_plan(
    job: Job,
    profile: DataProfile,
    model: ResolvedModel,
    arch: ModelArch,
    snapshot: OffersSnapshot | None,
    efficiency: Efficiency,
    *,
    here: Cluster | None,
    today: datetime.date,
    notes: Sequence[str] = (),
) -> Plan:
    """The plan of `job`. `here`: this machine, for hardware.here (then nothing is rented and `snapshot` unused).

    Raises PlanningError ST301 for an unknown GPU name, ST303 for a provider or region without offers; everything that
    merely cannot work is in `rejected`. With one cluster asked for, its candidate is there also when it does not fit.
    """
    evaluator = Evaluator(job=job, profile=profile, arch=arch, efficiency=efficiency, is_here=here is not None)
    wanted = clusters(job, here)
    if snapshot is not None and here is None:
        _check_names(snapshot, job)
    found, rejected, nearest = _evaluate(evaluator, wanted, here, None if here else snapshot, today)
    ranked = rank(job, found)
    kept = [c for c in ranked if c.fits and reject_after(job, c) is None]
    pick = next((c for c in kept if is_sure(c)), kept[0] if kept else None)
    runner_up = _runner_up(kept, pick)
    explained = with_reasons(job, ranked, pick)
    picked = next((c for c in explained if pick is not None and c.rank == pick.rank), None)
    lost = None if any(c.fits for c in found) else nearest
    usd_krw = snapshot.usd_krw if snapshot is not None else None
    ledger = evaluator.scenario(explained[0].cluster, explained[0].run_config).ledger if explained else None
    return Plan(
        job=job,
        profile=profile,
        num_params=arch.num_params,
        num_trainable_params=ledger.num_trainable if ledger else arch.num_params,
        candidates=explained,
        model=model,
        rejected=(*_beyond_goal(job, found), *rejected),
        pick=picked.rank if picked else None,
        runner_up=runner_up.rank if runner_up else None,
        summary=summarise(job, picked, explained, usd_krw),
        smaller_gpu=smaller_gpu(evaluator, picked, wanted),
        notes=tuple(note for note in (*notes, *model.notes, *_own_notes(evaluator, explained, picked)) if note),
        offers_date=snapshot.date if snapshot is not None and here is None else None,
        offers_age_days=_age_days(snapshot.date, today) if snapshot is not None and here is None else None,
        usd_krw=usd_krw,
        model_family=arch.family,
        levers=_levers(evaluator, lost) if lost else (),
        levers_for=f"{lost.cluster.label} {lost.run_config.label}" if lost else "",
        usd_krw_date=snapshot.usd_krw_date if snapshot is not None else None,
    )


def _levers(evaluator: Evaluator, lost: Candidate) -> "tuple[Lever, ...]":
    from stoker.planner.levers import find_levers  # only where nothing fits

    return find_levers(evaluator, lost)


def _own_notes(
    evaluator: Evaluator, explained: Sequence[Candidate], picked: Candidate | None
) -> tuple[str | None, ...]:
    job = evaluator.job
    return (
        scaling_note(explained, picked) or single_note(evaluator, explained, picked),
        order_note(job, explained),
        stale_note(picked),
        package_note(job),
        planned_note(explained),
        flash_note(job),
        experts_note(job, evaluator.arch),
        beside_experts_note(job, evaluator.arch),
    )


def _check_names(snapshot: OffersSnapshot, job: Job) -> None:
    """A misspelt provider or region would leave every price out without a word."""
    for key, wanted in (("provider", job.hardware.providers), ("region", job.hardware.regions)):
        if not isinstance(wanted, str):
            check_listed(snapshot, key, wanted, f"hardware.{key}s")


def _evaluate(
    evaluator: Evaluator,
    wanted: Sequence[Cluster],
    here: Cluster | None,
    snapshot: OffersSnapshot | None,
    today: datetime.date,
) -> tuple[list[Candidate], list[Rejection], Candidate | None]:
    """Candidates that fit (or the only one), rejections (a late or dear candidate is both), the nearest that fails."""
    found: list[Candidate] = []
    rejected: list[Rejection] = []
    nearest: Candidate | None = None
    remedies: dict[str, str] = {}
    for cluster in wanted:
        problem = reject_before(evaluator.job, cluster, here, arch=evaluator.arch)
        if problem is not None:
            rejected.append(problem)
            continue
        candidate = evaluator.candidate(cluster)
        if candidate is None:
            continue
        candidate = _priced(evaluator, candidate, snapshot, today)
        if not candidate.fits:
            name = cluster.device.name
            if name not in remedies:
                remedies[name] = what_would_fit(evaluator, cluster.device)
            rejected.append(memory_rejection(candidate, remedies[name]))
            if nearest is None or _need(candidate) < _need(nearest):
                nearest = candidate
            if len(wanted) > 1:
                continue
        found.append(candidate)
    return found, rejected, nearest


def _need(candidate: Candidate) -> float:
    """Memory needed over memory there."""
    return candidate.memory.expected_bytes / max(candidate.memory.visible_bytes, 1)


def _beyond_goal(job: Job, found: Sequence[Candidate]) -> list[Rejection]:
    """What misses the deadline or the budget, the nearest miss first."""

    def miss(candidate: Candidate) -> float:
        if job.goal.deadline_hours is not None or candidate.cost is None:
            return candidate.time.total_s
        return candidate.cost.total_usd

    late = (reject_after(job, candidate) for candidate in sorted(found, key=miss))
    return [rejection for rejection in late if rejection is not None]


def _priced(
    evaluator: Evaluator, candidate: Candidate, snapshot: OffersSnapshot | None, today: datetime.date
) -> Candidate:
    """With the best offer inline, and the next ones beside it, in the order of `matching_offers`."""
    if snapshot is None:
        return candidate
    cluster, job = candidate.cluster, evaluator.job
    offers = matching_offers(snapshot, cluster.device.name, cluster.num_gpus, job.hardware, today)
    costs: list[CostEstimate] = []
    first: tuple[Cluster, TimeEstimate] | None = None
    for offer in offers[:_OFFERS_SHOWN]:
        facts = provider(offer.provider)
        joined, time = _on_network(evaluator, candidate, offer)
        first = first or (joined, time)
        cost = estimate_cost(time.total_s, time.low_s, time.high_s, offer, facts, job.goal, today=today)
        costs.append(replace(cost, is_stale=freshness(offer, today) == "stale"))
    if first is None:
        return candidate
    return replace(candidate, cluster=first[0], time=first[1], cost=costs[0], offers=tuple(costs[1:]))


def _on_network(evaluator: Evaluator, candidate: Candidate, offer: Offer) -> tuple[Cluster, TimeEstimate]:
    """(cluster, time) of the candidate on the machines of `offer`: with their network, where it is known and used."""
    cluster, time = candidate.cluster, candidate.time
    fabric = node_fabric(offer.provider, offer.instance) if cluster.nodes > 1 else None
    if fabric is not None:
        cluster = replace(cluster, inter_node_bytes_per_s=fabric.bytes_per_s)
        time = evaluator.time(cluster, candidate.run_config)
    return cluster, with_restarts(time) if offer.price_kind == "spot" else time


def _runner_up(kept: Sequence[Candidate], pick: Candidate | None) -> Candidate | None:
    """The next best on another GPU type, else the next best of all."""
    if pick is None:
        return None
    rest = [c for c in kept if c.rank != pick.rank]
    other = [c for c in rest if c.cluster.device.name != pick.cluster.device.name]
    return next(iter(other), next(iter(rest), None))


def _age_days(date: str | None, today: datetime.date) -> int | None:
    return None if date is None else max(0, (today - datetime.date.fromisoformat(date)).days)
