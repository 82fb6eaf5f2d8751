"""Hard limits, one function each: what cannot work becomes a Rejection with its reason and what would fix it.

The first group looks at the job and the cluster alone, before anything is estimated; the second at a finished
candidate. Nothing here raises: infeasible is a value.
"""

import math
from collections.abc import Callable

from stoker.core.hardware import Cluster
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.ledger import ModelArch
from stoker.core.plan import Candidate, Rejection
from stoker.core.run_config import Parallel
from stoker.core.units import GB, HOUR_S
from stoker.planner.space import choose_precision, micro_batch_sizes, strategies
from stoker.techniques.attention import attention
from stoker.techniques.optimizer import optimizer
from stoker.techniques.parallel import parallel
from stoker.techniques.precision import precision

MOST_GPUS_PER_NODE = 8


def reject_before(
    job: Job, cluster: Cluster, here: Cluster | None = None, *, arch: ModelArch | None = None
) -> Rejection | None:
    """The first limit that `cluster` breaks for `job`, or None. `here`: this machine, for hardware.here.

    `arch`: the model, where pinned degrees must be able to cut it.
    """
    if here is not None and cluster.num_gpus > here.num_gpus:
        return _here_lacks(cluster, here)
    for limit in _BEFORE:
        found = limit(job, cluster)
        if found is not None:
            return found
    return None if arch is None else _degrees_cut(job, cluster, arch)


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


def _degrees_cut(job: Job, cluster: Cluster, arch: ModelArch) -> Rejection | None:
    """Heads, layers and experts must divide by the pinned degrees; tensor parallel stays within fast links."""
    for degrees in strategies(job, cluster.num_gpus):
        problem = parallel(degrees).problem(arch, degrees) or _beyond_fast_links(degrees, cluster)
        if problem is not None:
            return rejection(cluster, "ST331", problem, _("pin degrees that divide, or remove run.parallel"))
    return None


def _beyond_fast_links(degrees: Parallel, cluster: Cluster) -> str | None:
    """Every sum of tensor parallel is waited for, so it must not leave the GPUs that one link joins."""
    joined = cluster.device.link_max_gpus or 0
    domain = joined if joined > MOST_GPUS_PER_NODE else cluster.gpus_per_node
    if degrees.tp <= domain:
        return None
    return _("tp {ranks} reaches beyond the {domain} GPUs that fast links join").format(ranks=degrees.tp, domain=domain)


def _peak_is_known(job: Job, cluster: Cluster) -> Rejection | None:
    """Memory could be told without it, time and money could not; a sister's peak would be a guess."""
    if cluster.device.peak_flops_per_s:
        return None
    return rejection(
        cluster,
        "ST333",
        _("the peak of {gpu} is not published, so its time cannot be predicted").format(gpu=cluster.device.name),
        _("name a sister whose peak is known under hardware.gpus"),
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


def _optimizer_takes_shards(job: Job, cluster: Cluster) -> Rejection | None:
    """Pinned FSDP with an optimizer that needs whole matrices; what is not pinned is not searched with it."""
    if optimizer(job.train.optimizer).takes_shards:
        return None
    if not any(degrees.dp_shard > 1 and degrees.zero_stage == 3 for degrees in strategies(job, cluster.num_gpus)):
        return None
    return rejection(
        cluster,
        "ST332",
        _("{optimizer} steps whole matrices, FSDP keeps shards: the two together are not built").format(
            optimizer=job.train.optimizer
        ),
        _("pin dp_replicate (DDP) instead of dp_shard, or use train.optimizer: adamw"),
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


def host_room(job: Job, candidate: Candidate) -> Rejection | None:
    """What tiers put into DRAM and on flash must fit there, where the sizes are known."""
    for tier, room in host_budgets(job, candidate.cluster).items():
        need = candidate.memory.tiers.get(tier, 0)
        if room is not None and need > room:
            return rejection(
                candidate.cluster,
                "ST330",
                _("needs {need:.1f} GB of {tier} a GPU, there are {room:.1f} GB").format(
                    need=need / GB, tier={"dram": _("host memory"), "nvme": _("flash")}[tier], room=room / GB
                ),
                _("give hardware.nvme, raise hardware.dram_gb, or use more GPUs"),
            )
    return None


def host_budgets(job: Job, cluster: Cluster) -> dict[str, float | None]:
    """Bytes of DRAM and NVMe for one GPU's state, None where unknown; a machine's are shared by its GPUs."""
    dram = job.hardware.dram_gb * GB if job.hardware.dram_gb is not None else cluster.host.dram_bytes
    nvme = job.hardware.nvme.gb * GB if job.hardware.nvme is not None else 0.0
    return {"dram": None if dram is None else dram / cluster.gpus_per_node, "nvme": nvme / cluster.gpus_per_node}


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
    _peak_is_known,
    _packed_not_offered,
    _capture_not_offered,
    _nodes,
    _degrees_make_up,
    _batch_divides,
    _optimizer_takes_shards,
    _precision_supported,
    _attention_supported,
)
_AFTER: tuple[Callable[[Job, Candidate], Rejection | None], ...] = (host_room, _deadline, _budget)
