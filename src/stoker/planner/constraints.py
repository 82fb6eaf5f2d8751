"""Hard limits, one function each: what cannot work becomes a Rejection with its reason and what would fix it.

The first group looks at the job and the cluster alone, before anything is estimated; the second at a finished
candidate. Nothing here raises: infeasible is a value.
"""

import math
from collections.abc import Callable

from stoker.core.hardware import Cluster
from stoker.core.i18n import _
from stoker.core.job import Job, ParallelSpec
from stoker.core.plan import Candidate, Rejection
from stoker.core.units import GB, HOUR_S
from stoker.planner.space import choose_precision, micro_batch_sizes, strategies
from stoker.techniques.attention import attention
from stoker.techniques.precision import precision

MOST_GPUS_PER_NODE = 8


def reject_before(job: Job, cluster: Cluster, here: Cluster | None = None) -> Rejection | None:
    """The first limit that `cluster` breaks for `job`, or None. `here`: this machine, for hardware.here."""
    if here is not None and cluster.num_gpus > here.num_gpus:
        return _here_lacks(cluster, here)
    for limit in _BEFORE:
        found = limit(job, cluster)
        if found is not None:
            return found
    return None


def reject_after(job: Job, candidate: Candidate) -> Rejection | None:
    """The first limit of the goal (deadline, budget) that an estimated candidate breaks, or None."""
    for limit in _AFTER:
        found = limit(job, candidate)
        if found is not None:
            return found
    return None


def rejection(cluster: Cluster, code: str, reason: str, fix: str) -> Rejection:
    """A rejection of this cluster."""
    return Rejection(gpu=cluster.device.name, num_gpus=cluster.num_gpus, reason=reason, fix=fix, code=code)


def _placement_not_offered(job: Job, cluster: Cluster) -> Rejection | None:
    if job.run.placement != "tiers" and job.hardware.nvme is None:
        return None
    return rejection(
        cluster,
        "ST323",
        _("memory tiers are not offered yet: all state must fit in the GPU"),
        _("remove hardware.nvme and use run.placement: hbm"),
    )


def _degrees_not_offered(job: Job, cluster: Cluster) -> Rejection | None:
    pinned = job.run.parallel
    if not isinstance(pinned, ParallelSpec):
        return None
    further = [name for name in ("tp", "pp", "cp", "ep") if getattr(pinned, name) > 1]
    if not further and not (pinned.dp_replicate > 1 and pinned.dp_shard > 1):
        return None
    names = ", ".join(further) or "dp_replicate + dp_shard"
    return rejection(
        cluster,
        "ST323",
        _("{names} is not offered yet").format(names=names),
        _("pin dp_replicate (DDP) or dp_shard (FSDP) alone, or remove run.parallel"),
    )


def _packed_not_offered(job: Job, cluster: Cluster) -> Rejection | None:
    if job.run.packing != "packed":
        return None
    return rejection(
        cluster,
        "ST323",
        _("packing: packed is not offered yet"),
        _("use run.packing: bucketed"),
    )


def _capture_not_offered(job: Job, cluster: Cluster) -> Rejection | None:
    """Priced and built by its technique, but no run of ours has measured it yet."""
    if job.run.capture != "compile":
        return None
    return rejection(
        cluster,
        "ST323",
        _("capture: compile is not offered yet"),
        _("use run.capture: none"),
    )


def _nodes(job: Job, cluster: Cluster) -> Rejection | None:
    if cluster.num_gpus % cluster.nodes == 0 and cluster.gpus_per_node <= MOST_GPUS_PER_NODE:
        return None
    return rejection(
        cluster,
        "ST324",
        _("{num} GPUs on {nodes} machines: more than {most} in one machine, or an uneven share").format(
            num=cluster.num_gpus, nodes=cluster.nodes, most=MOST_GPUS_PER_NODE
        ),
        _("set hardware.nodes so that every machine has the same number, at most {most}").format(
            most=MOST_GPUS_PER_NODE
        ),
    )


def _degrees_make_up(job: Job, cluster: Cluster) -> Rejection | None:
    if strategies(job, cluster.num_gpus):
        return None
    return rejection(
        cluster,
        "ST324",
        _("the pinned run.parallel is for another number of GPUs"),
        _("pin hardware.num_gpus to the product of the degrees, or remove run.parallel"),
    )


def _batch_divides(job: Job, cluster: Cluster) -> Rejection | None:
    """The global batch is the user's, so a count that does not divide it is named with the nearest that does."""
    batch, micro = job.train.global_batch_size, job.run.micro_batch_size
    degrees = strategies(job, cluster.num_gpus)[0]
    unit = degrees.data_parallel * (micro if isinstance(micro, int) else 1)
    if batch % degrees.data_parallel == 0 and micro_batch_sizes(job, batch // degrees.data_parallel):
        return None
    below, above = batch - batch % unit, batch - batch % unit + unit
    nearest = below if below and batch - below <= above - batch else above
    return rejection(
        cluster,
        "ST321",
        _("the global batch of {batch} does not divide by {unit}").format(batch=batch, unit=unit),
        _("train.global_batch_size: {nearest}, or another number of GPUs").format(nearest=nearest),
    )


def _precision_supported(job: Job, cluster: Cluster) -> Rejection | None:
    problem = precision(choose_precision(job, cluster.device)).unsupported(cluster.device)
    if problem is None:
        return None
    return rejection(cluster, "ST322", problem, _("use run.precision: auto"))


def _attention_supported(job: Job, cluster: Cluster) -> Rejection | None:
    if job.run.attention == "auto":
        return None
    problem = attention(job.run.attention).unsupported(cluster.device)
    if problem is None:
        return None
    return rejection(cluster, "ST322", problem, _("use run.attention: auto"))


def _here_lacks(cluster: Cluster, here: Cluster) -> Rejection:
    has = 0 if here.device.kind == "cpu" else here.num_gpus
    return rejection(
        cluster,
        "ST324",
        _("this machine has {has} GPUs, not {num}").format(has=has, num=cluster.num_gpus),
        _("remove hardware.num_gpus"),
    )


def _deadline(job: Job, candidate: Candidate) -> Rejection | None:
    limit = job.goal.deadline_hours
    if limit is None or candidate.time.total_s <= limit * HOUR_S:
        return None
    return rejection(
        candidate.cluster,
        "ST325",
        _("the deadline of {limit:g} h is missed: {hours:.1f} h expected").format(
            limit=limit, hours=candidate.time.total_s / HOUR_S
        ),
        _("goal.deadline_hours: {hours:g}, or a faster GPU").format(hours=_rounded_up(candidate.time.high_s / HOUR_S)),
    )


def _budget(job: Job, candidate: Candidate) -> Rejection | None:
    limit = job.goal.budget_usd
    if limit is None or candidate.cost is None or candidate.cost.total_usd <= limit:
        return None
    return rejection(
        candidate.cluster,
        "ST326",
        _("the budget of {limit:,.2f} USD is exceeded: {usd:,.2f} USD expected").format(
            limit=limit, usd=candidate.cost.total_usd
        ),
        _("goal.budget_usd: {usd:g}, or a cheaper GPU").format(usd=_rounded_up(candidate.cost.high_usd)),
    )


def _rounded_up(value: float) -> float:
    """`value` up to its second digit: what is suggested must hold, and not be far off."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1) if value > 0 else 1.0
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.3g}")


def memory_rejection(candidate: Candidate, fix: str) -> Rejection:
    """The configuration with the best chance still does not fit."""
    memory = candidate.memory
    return rejection(
        candidate.cluster,
        "ST320",
        _("needs {need:.1f} GB ({config}), the GPU shows {visible:.1f} GB").format(
            need=memory.expected_bytes / GB, config=candidate.run_config.label, visible=memory.visible_bytes / GB
        ),
        fix,
    )


_BEFORE: tuple[Callable[[Job, Cluster], Rejection | None], ...] = (
    _placement_not_offered,
    _degrees_not_offered,
    _packed_not_offered,
    _capture_not_offered,
    _nodes,
    _degrees_make_up,
    _batch_divides,
    _precision_supported,
    _attention_supported,
)
_AFTER: tuple[Callable[[Job, Candidate], Rejection | None], ...] = (_deadline, _budget)
