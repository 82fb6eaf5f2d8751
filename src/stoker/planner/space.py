"""The space of plans: clusters that a job may use, and the run configurations worth estimating on each.

Every combination of what is not pinned: strategy (single, DDP, FSDP), recompute, loss kernel, micro-batch size. What
does not touch memory and time against each other (attention kernel, packing, workers) is settled by rule. Only what
`stoker run` can run is searched, pins reach the rest (docs/architecture.md); memory tiers are searched where pinned.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

from stoker.catalogue.gpus import default_devices, find_device
from stoker.core.hardware import Cluster, Device
from stoker.core.job import Job, ParallelSpec
from stoker.core.ledger import ModelArch
from stoker.core.run_config import LossKernel, Parallel, Precision, Recompute, RunConfig, TierShares
from stoker.core.units import GB
from stoker.techniques.optimizer import optimizer
from stoker.techniques.precision import precision

_IMAGE_WORKERS = 8
# What leaves the GPU, in the order of what it costs: state crosses the link once a step, gradients once, weights
# twice, activations with every micro-batch. All with the loop that the engine will have.
_ENGINE = TierShares(layer_major=True, exact_pinned=True, lossless_state=True)
TIER_STEPS: tuple[TierShares, ...] = (
    *(replace(_ENGINE, state=share) for share in (0.25, 0.5, 0.75, 1.0)),
    replace(_ENGINE, gradients=1.0),
    *(replace(_ENGINE, gradients=1.0, weights=share) for share in (0.5, 1.0)),
    replace(_ENGINE, gradients=1.0, weights=1.0, activations=1.0),
)


def clusters(job: Job, here: Cluster | None) -> tuple[Cluster, ...]:
    """Clusters in the order of the job's list, counts ascending. Raises PlanningError ST301 for an unknown GPU.

    `here`: this machine, for hardware.here. `hardware.hbm_gb` caps what is visible.
    """
    spec = job.hardware
    if here is not None:
        most = min(here.num_gpus, spec.max_gpus)
        counts = [spec.num_gpus] if spec.num_gpus else list(range(1, most + 1))
        return tuple(replace(here, device=_capped(here.device, job), num_gpus=count) for count in counts)
    named = (
        default_devices()
        if spec.gpus is None
        else tuple(find_device(name, place=f"{job.source_path} hardware.gpus".strip()) for name in spec.gpus)
    )
    devices = {device.name: device for device in named}.values()
    counts = [spec.num_gpus] if spec.num_gpus else _counts(spec.max_gpus, spec.nodes)
    return tuple(
        Cluster(device=_capped(device, job), num_gpus=count, nodes=spec.nodes) for device in devices for count in counts
    )


def _counts(most: int, nodes: int) -> list[int]:
    """Every count up to 8 a node, then powers of two."""
    per_node = [n for n in range(1, most // nodes + 1) if n <= 8 or n & (n - 1) == 0]
    return [n * nodes for n in per_node]


def _capped(device: Device, job: Job) -> Device:
    cap = job.hardware.hbm_gb if device.kind != "cpu" else job.hardware.dram_gb
    return device if cap is None else replace(device, visible_bytes=min(device.visible_bytes, round(cap * GB)))


def run_configs(job: Job, cluster: Cluster, arch: ModelArch) -> Iterator[tuple[RunConfig, ...]]:
    """Families of configurations that differ in micro-batch size only, largest first.

    Empty where the pinned degrees do not make up this cluster or the global batch does not divide.
    """
    for parallel in strategies(job, cluster.num_gpus):
        if job.train.global_batch_size % parallel.data_parallel:
            continue
        sizes = micro_batch_sizes(job, job.train.global_batch_size // parallel.data_parallel)
        for recompute in recomputes(job, arch):
            for loss in losses(job):
                family = tuple(_config(job, cluster, parallel, recompute, loss, size) for size in sizes)
                if family:
                    yield from _placed(job, family)


def _placed(job: Job, family: tuple[RunConfig, ...]) -> Iterator[tuple[RunConfig, ...]]:
    """`family` in GPU memory; or, where tiers are pinned, once for each step of what leaves it, the least first."""
    if job.run.placement != "tiers":
        yield family
        return
    flash = (0.0, 0.5, 1.0) if job.hardware.nvme is not None else (0.0,)
    for step in TIER_STEPS:
        if step.activations and family[0].recompute == "none":  # only what is kept at a boundary can leave
            continue
        for share in flash:
            tiers = replace(step, nvme=share)
            yield tuple(replace(config, placement="tiers", tiers=tiers) for config in family)


def strategies(job: Job, num_gpus: int) -> tuple[Parallel, ...]:
    """Single for one GPU; DDP and FSDP for several; or the pinned degrees where they make up `num_gpus`.

    FSDP only where the optimizer steps shards.
    """
    pinned = job.run.parallel
    if isinstance(pinned, ParallelSpec):
        degrees = Parallel(
            **{item.name: getattr(pinned, item.name) for item in fields(pinned)}  # the same names, on purpose
        )
        return (degrees,) if degrees.world_size == num_gpus else ()
    if num_gpus == 1:
        return (Parallel(),)
    copies, shards = Parallel(dp_replicate=num_gpus), Parallel(dp_shard=num_gpus)
    return (copies, shards) if optimizer(job.train.optimizer).takes_shards else (copies,)


def micro_batch_sizes(job: Job, per_rank: int) -> tuple[int, ...]:
    """Divisors of the rank's share of the global batch, largest first; or the pinned size where it divides."""
    pinned = job.run.micro_batch_size
    if isinstance(pinned, int):
        return (pinned,) if per_rank % pinned == 0 else ()
    return (
        tuple(size for size in range(per_rank, 0, -1) if per_rank % size == 0)
        if per_rank <= 4096
        else (*(per_rank >> shift for shift in range(13) if per_rank % (1 << shift) == 0),)
    )


def recomputes(job: Job, arch: ModelArch) -> tuple[Recompute, ...]:
    """None, and full where the model has blocks; selective only where pinned (fused attention does it anyway)."""
    if job.run.recompute != "auto":
        return (job.run.recompute,)
    return ("none", "full") if any(group.kind == "block" for group in arch.groups) else ("none",)


def losses(job: Job) -> tuple[LossKernel, ...]:
    """Chunks matter for vocabularies only."""
    if job.run.loss != "auto":
        return (job.run.loss,)
    return ("eager", "chunked") if job.task == "causal_lm" else ("eager",)


def choose_precision(job: Job, device: Device) -> Precision:
    """bf16 (language models) or bf16_amp (classification) where the device has bf16, else fp16_amp, else fp32.

    By compute capability: a T4 or V100 never gets bf16. A CPU computes in fp32.
    """
    if job.run.precision != "auto":
        return job.run.precision
    if device.kind == "cpu":
        return "fp32"
    wanted: Precision = "bf16" if job.task == "causal_lm" else "bf16_amp"
    for name in (wanted, "fp16_amp"):
        if precision(name).unsupported(device) is None:
            return name
    return "fp32"


def choose_workers(job: Job, cluster: Cluster) -> int:
    """Loader processes: none for tokenised text, up to eight for images, never more than the host's cores."""
    if isinstance(job.run.workers, int):
        return job.run.workers
    if job.task != "image_classification":
        return 0
    cores = cluster.host.num_cores
    return _IMAGE_WORKERS if cores is None else max(0, min(_IMAGE_WORKERS, cores - 1))


def _config(
    job: Job, cluster: Cluster, parallel: Parallel, recompute: Recompute, loss: LossKernel, micro_batch_size: int
) -> RunConfig:
    batch = job.train.global_batch_size
    is_image = job.task == "image_classification"
    return RunConfig(
        micro_batch_size=micro_batch_size,
        gradient_accumulation_steps=batch // (micro_batch_size * parallel.data_parallel),
        global_batch_size=batch,
        parallel=parallel,
        precision=choose_precision(job, cluster.device),
        recompute=recompute,
        placement="hbm",
        loss=loss,
        attention="sdpa" if job.run.attention == "auto" else job.run.attention,
        packing=("none" if is_image else "bucketed") if job.run.packing == "auto" else job.run.packing,
        capture="none" if job.run.capture == "auto" else job.run.capture,
        workers=choose_workers(job, cluster),
    )


def smallest_configs(job: Job, cluster: Cluster, arch: ModelArch) -> Sequence[RunConfig]:
    """The least memory that each strategy can do with: smallest micro-batch, recompute and chunks where allowed."""
    result = []
    for parallel in strategies(job, cluster.num_gpus):
        if job.train.global_batch_size % parallel.data_parallel == 0:
            sizes = micro_batch_sizes(job, job.train.global_batch_size // parallel.data_parallel)
            if sizes:
                config = _config(job, cluster, parallel, recomputes(job, arch)[-1], losses(job)[-1], sizes[-1])
                result.append(list(_placed(job, (config,)))[-1][0])
    return result
