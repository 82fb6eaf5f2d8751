"""What a finished run would take and cost on rented GPUs: its own plan's job, planned again over other hardware.

Nothing is looked up but the catalogue: model, data profile and learning curve are those that the record carries.
"""

import datetime
from dataclasses import replace

from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.models.api import arch_of
from stoker.catalogue.offers import load_snapshot
from stoker.core.comparison import Elsewhere
from stoker.core.job import Job, RunPins
from stoker.core.plan import Candidate, Plan
from stoker.planner.api import make_plan


def plan_elsewhere(plan: Plan, *, today: datetime.date | None = None) -> tuple[Elsewhere, ...]:
    """The best way on each GPU type that clouds rent for training, best first; without what cannot run it.

    Deadline, budget and the pins of the original hardware do not hold elsewhere; clouds, regions, spot, currency and
    tax do. Raises ModelError where the plan's model is of a family that this stoker does not know.
    """
    day = today or datetime.datetime.now(datetime.UTC).date()
    job = _unbound(plan.job)
    num_labels = plan.profile.num_labels or job.num_declared_labels
    arch = arch_of(plan.model, task=job.task, num_labels=num_labels)
    again = make_plan(job, plan.profile, plan.model, arch, load_snapshot(), load_efficiency(), here=None, today=day)
    best: dict[str, Candidate] = {}
    for candidate in again.candidates:
        if candidate.fits:
            best.setdefault(candidate.cluster.device.name, candidate)
    return tuple(
        Elsewhere(cluster=c.cluster.label, total_s=c.time.total_s, fits=True, cost=c.cost) for c in best.values()
    )


def _unbound(job: Job) -> Job:
    """`job` with the same learning curve, free of the hardware that it ran on."""
    hardware = replace(
        job.hardware, here=False, gpus=None, num_gpus=None, nodes=1, hbm_gb=None, dram_gb=None, nvme=None
    )
    goal = replace(job.goal, deadline_hours=None, budget_usd=None)
    return replace(job, hardware=hardware, goal=goal, run=RunPins())
