"""plan_job: everything that a plan needs, looked up for a job on this machine without the network.

Each thing that could not be looked up leaves one line in the plan's notes.
"""

import datetime
from dataclasses import replace
from pathlib import Path

from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.gpus import device_from_driver_name
from stoker.catalogue.models.api import resolve_model
from stoker.catalogue.offers import load_snapshot
from stoker.core.efficiency import Efficiency
from stoker.core.errors import PlanningError
from stoker.core.hardware import Cluster, Device
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.offer import OffersSnapshot
from stoker.core.plan import Plan
from stoker.data.profile import quick_profile
from stoker.planner.api import make_plan


def plan_job(job: Job, *, today: datetime.date | None = None, efficiency: Efficiency | None = None) -> Plan:
    """The plan of `job` with the model, data profile, prices and corrections that this machine has.

    Raises ModelError, DataError or PlanningError for bad input. `today` dates the prices' age (default: the clock).
    """
    day = today or datetime.datetime.now(datetime.UTC).date()
    model, arch = resolve_model(job, job.num_declared_labels)
    profile, notes = quick_profile(job, model)
    if profile.num_labels and profile.num_labels != job.num_declared_labels:
        model, arch = resolve_model(job, profile.num_labels)
    here = _this_machine(job)
    if here is not None and here.device.note:
        notes = [*notes, here.device.note]
    snapshot = None if here is not None else _snapshot()
    if here is None and snapshot is None:
        notes = [*notes, _("there are no prices, so cost is left out")]
    return make_plan(
        job, profile, model, arch, snapshot, efficiency or load_efficiency(), here=here, today=day, notes=notes
    )


def _this_machine(job: Job) -> Cluster | None:
    if not job.hardware.here:
        return None
    from stoker.observe.here import this_machine

    cluster = this_machine(Path(job.base_dir))
    return cluster if cluster.device.kind == "cpu" else replace(cluster, device=known_product(cluster.device))


def known_product(seen: Device) -> Device:
    """The catalogue's product that the driver describes, with the sizes and speeds seen here.

    Raises PlanningError ST327 for a GPU that the table lacks: another one's peak would be a guess.
    """
    product = device_from_driver_name(seen.name, seen.sold_bytes)
    if product is None:
        raise PlanningError(
            "ST327",
            _("this machine's GPU is not in the table: {name}").format(name=seen.name),
            place="hardware.here",
            fix=_("name the nearest product under hardware.gpus instead, or report the GPU"),
        )
    return replace(
        product,
        visible_bytes=seen.visible_bytes or product.visible_bytes,
        pcie_bytes_per_s=seen.pcie_bytes_per_s or product.pcie_bytes_per_s,
        note=seen.note,
        visible_source=seen.visible_source,
    )


def _snapshot() -> OffersSnapshot | None:
    snapshot = load_snapshot()
    return snapshot if snapshot.offers else None
