"""build_trial: a measurement's words into the scenario that the estimators predict, or the reason why not.

One way, in order: model, GPU, method, precision, strategy, batch, lengths; then the techniques' passes. What the table
leaves open the stack's row answers; what nobody answers is a reason. Shapes and ledgers are cached, because tables
repeat them.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.catalogue.gpus import published_device
from stoker.catalogue.models.published import PublishedModel, find_published
from stoker.catalogue.stacks import find_stack
from stoker.catalogue.text_lengths import find_text_lengths
from stoker.core.efficiency import Efficiency
from stoker.core.errors import StokerError
from stoker.core.hardware import Cluster, Device
from stoker.core.job import DataSpec, Job, Method, Task, TrainSpec, TuneSpec
from stoker.core.measurement import Measurement
from stoker.core.profile import LengthDistribution, lengths_constant
from stoker.core.run_config import Parallel, RunConfig, TierShares
from stoker.core.stack import Stack
from stoker.estimators.memory import estimate_memory
from stoker.estimators.scenario import Scenario
from stoker.techniques.optimizer import OPTIMIZERS
from stoker.techniques.precision import PRECISIONS
from stoker.techniques.recompute import RECOMPUTES
from stoker.validation.alternatives import Alternative, alternatives
from stoker.validation.ledgers import ledger_of
from stoker.validation.notes import (
    dropped_beyond,
    lengths_from_moments,
    read_image_size,
    read_lengths,
    read_rank,
    read_rounds,
    read_targets,
)
from stoker.validation.parallelism import Strategy, read_strategy
from stoker.validation.wording import (
    Gap,
    MethodWords,
    as_told,
    first_built,
    leaves_weights_open,
    read_attention,
    read_loss,
    read_method,
    read_optimizer,
    read_precision,
    read_products,
    read_recompute,
    reads_compile,
    reads_double_quant,
    reads_native_attention,
    steps_as_told,
)

_GPUS_A_NODE = 8
_IMAGES_A_BATCH = 128  # where a table of image speeds leaves it open; beyond some dozens it hardly changes the speed
_TOKENS_A_BATCH = 16384  # where a table of text speeds leaves it open; halved until it fits
_RATES = ("tokens_per_s_per_gpu", "samples_per_s_per_gpu")
_WORKERS = 256  # benchmarks keep the GPU fed: synthetic data, DALI, or loaders tuned until they do not limit
_LEAST_TOKENS = 2048  # of a run that is only said to have run out of memory: what fine-tuning tables usually take
_BINS_FROM = 512  # tokens: shorter samples of a corpus are nearly all full
_NOT_PREDICTED = {
    "mfu": "derived from the step time, which is scored",
    "failed": "a failure that says nothing about memory or time",
    "fit_max_seq_len": "a search by the vendor, not a run",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NotScored:
    """A measurement without a prediction, and why."""

    measurement: Measurement
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A measurement as a scenario: `model` by its hub id, `method` in our words.

    `fitting`: the same with what the table leaves open chosen so that it fits, where any choice does.

    `widened`: what was assumed, each of which widens the interval.
    """

    measurement: Measurement
    scenario: Scenario
    fitting: Scenario
    model: str
    method: str
    tune: TuneSpec
    widened: tuple[str, ...] = ()


def build_trial(
    measurement: Measurement,
    efficiency: Efficiency,
    *,
    unseen: Collection[str] = (),
    unfitted: Collection[str] = (),
) -> Trial | NotScored:
    """The scenario of `measurement`. `unseen`, `unfitted`: sources left out, as `catalogue.stacks.find_stack` says."""
    reason = _reason_not_to(measurement)
    if reason:
        return NotScored(measurement=measurement, reason=reason)
    try:
        return _trial(
            measurement, efficiency, as_told(find_stack(measurement, unseen=unseen, unfitted=unfitted), measurement)
        )
    except Gap as gap:
        return NotScored(measurement=measurement, reason=str(gap))
    except StokerError as error:
        return NotScored(measurement=measurement, reason=f"{error.code}: {error.problem}")


def _reason_not_to(measurement: Measurement) -> str:
    if measurement.quality == "suspect":
        return "suspect: fails a physics or consistency check of the table's authors"
    if measurement.metric == "mfu" and measurement.value > 1.0:
        return "more than the peak cannot be: an error, not a figure"
    return _NOT_PREDICTED.get(measurement.metric, "")


def _trial(measurement: Measurement, efficiency: Efficiency, stack: Stack) -> Trial:
    model = find_published(measurement.model, measurement.num_params)
    if model is None:
        raise Gap(f"model {measurement.model}: not known")
    found = published_device(measurement.gpu, measurement.gpu_gb)
    if found is None:
        raise Gap(f"GPU {measurement.gpu or '(none)'}: not known")
    device, certain = found
    method = read_method(measurement)
    stack = steps_as_told(stack, measurement)
    num_gpus, stated = _num_gpus(measurement)
    strategy = read_strategy(measurement.strategy, num_gpus)
    config, assumed = _config(measurement, stack, method, strategy, device)
    job = _job(measurement, stack, method.method, model.task, config)
    lengths = _lengths(measurement, stack, model, method)
    if not certain:
        assumed.append("gpu form")
    if not stated:
        assumed.append("number of GPUs")
    if model.is_generic:
        assumed.append("generic model")
    if method.is_near:
        assumed.append("method")
    cluster = _cluster(device, config.parallel.world_size)

    def scenario_of(option: RunConfig) -> Scenario:
        ledger, sums = ledger_of(model.hub_id, read_image_size(measurement), model, job, option, stack)
        return Scenario(
            task=model.task,
            optimizer=job.train.optimizer,
            ledger=ledger,
            sums=sums,
            config=option,
            cluster=cluster,
            lengths=lengths,
            efficiency=efficiency,
            stack=stack,
            products=read_products(measurement),
            native_attention=reads_native_attention(measurement),
        )

    options = list(
        alternatives(
            measurement,
            config,
            batch_assumed="micro-batch size" in assumed,
            precision_open=leaves_weights_open(measurement, stack, method.method),
            loss_open=stack.is_guess and config.loss == stack.loss,
        )
    )
    scenario, fitting, chosen = _plainest_that_fits(options, scenario_of)
    return Trial(
        measurement=measurement,
        scenario=scenario,
        fitting=fitting,
        model=model.hub_id,
        method=method.method,
        tune=job.tune,
        widened=tuple(dict.fromkeys((*assumed, *chosen))),
    )


def _plainest_that_fits(
    options: Sequence[Alternative], scenario_of: Callable[[RunConfig], Scenario]
) -> tuple[Scenario, Scenario, tuple[str, ...]]:
    """(the scenario to predict, one that fits, what differs from the plainest); the plainest where none fits.

    A recomputation of everything is taken for the fit alone: tuned recipes seldom pay its time.
    """
    plainest = scenario_of(options[0].config)
    if len(options) == 1 or estimate_memory(plainest).fits:
        return plainest, plainest, ()
    for option in options[1:]:
        try:
            scenario = scenario_of(option.config)
        except StokerError:
            continue  # nothing to recompute in a convolutional network
        if estimate_memory(scenario).fits:
            costly = "recompute" in option.chosen and option.config.recompute == "full"
            return (plainest if costly else scenario), scenario, option.chosen
    return plainest, plainest, ()


def _num_gpus(measurement: Measurement) -> tuple[int, bool]:
    """(GPUs, whether the table states them): a rate of one GPU among several is hardly another on one node."""
    if measurement.num_gpus is not None:
        return measurement.num_gpus, True
    if measurement.strategy and "single" not in measurement.strategy.casefold():
        if measurement.metric not in _RATES:
            raise Gap("the number of GPUs is not stated")
        return _GPUS_A_NODE, False
    return 1, True


def _cluster(device: Device, num_gpus: int) -> Cluster:
    size = max(device.link_max_gpus or 0, _GPUS_A_NODE) if (device.link_max_gpus or 0) >= 72 else _GPUS_A_NODE
    nodes = -(-num_gpus // size)
    nodes = nodes if num_gpus % nodes == 0 else 1
    return Cluster(device=device, num_gpus=num_gpus, nodes=nodes)


def _config(
    measurement: Measurement, stack: Stack, method: MethodWords, strategy: Strategy, device: Device
) -> tuple[RunConfig, list[str]]:
    """The run configuration, and what had to be assumed for it."""
    parallel = strategy.parallel
    assumed: list[str] = []
    micro, rounds = _batch(measurement, stack, strategy, assumed)
    offloaded = strategy.offloaded or method.offloaded
    attention = read_attention(measurement, stack)
    if attention == "flash" and (device.compute_capability or (8, 0)) < (8, 0):
        attention = "sdpa"  # a T4 or V100 has no flash kernels; libraries fall back to the memory-efficient one
    if strategy.is_guess:
        assumed.append("strategy")
    recompute = (method.recompute,) if method.recompute else read_recompute(measurement, stack)
    config: dict[str, Any] = {
        "micro_batch_size": micro,
        "gradient_accumulation_steps": rounds,
        "global_batch_size": micro * rounds * parallel.data_parallel,
        "parallel": parallel,
        "precision": _precision(measurement, stack, method.method, device),
        "recompute": first_built("recompute", recompute, RECOMPUTES),
        "placement": "tiers" if offloaded else "hbm",
        "tiers": _shares(parallel, nvme=strategy.nvme) if offloaded else None,
        "loss": read_loss(measurement, stack),
        "attention": attention,
        "packing": "none",
        "capture": "compile" if reads_compile(measurement, stack) else "none",
        "workers": _WORKERS,
    }
    return RunConfig(**config), assumed


def _precision(measurement: Measurement, stack: Stack, method: Method, device: Device) -> str:
    """The precision that the words mean on `device`: before Ampere 16 bits are fp16."""
    found = first_built("precision", read_precision(measurement, stack, method), PRECISIONS)
    said = "bf16" in measurement.precision.casefold() or "bfloat16" in measurement.precision.casefold()
    before_bf16 = device.kind == "cuda" and (device.compute_capability or (8, 0)) < (8, 0)
    return "fp16_amp" if before_bf16 and not said and found in ("bf16_amp", "bf16_pure") else found


def _shares(parallel: Parallel, *, nvme: bool) -> TierShares:
    """What offloading programs move: state and gradients, and the weights too where they are sharded (ZeRO-3, FSDP)."""
    sharded = parallel.zero_stage == 3 and parallel.shard_ranks > 1
    return TierShares(gradients=1.0, weights=1.0 if sharded else 0.0, nvme=1.0 if nvme else 0.0, update="cpu")


def _batch(measurement: Measurement, stack: Stack, strategy: Strategy, assumed: list[str]) -> tuple[int, int]:
    """(samples of a micro-batch, micro-batches of a step)."""
    ranks = strategy.parallel.data_parallel
    micro, whole = measurement.micro_batch_size, measurement.global_batch_size
    rounds = read_rounds(measurement)
    if micro is None and measurement.metric == "oom":
        assumed.append("micro-batch size")
        return 1, 1
    if micro is None and whole is not None and rounds is not None and whole % (ranks * rounds) == 0:
        micro = whole // (ranks * rounds)
    if micro is None and "img" in measurement.unit.casefold():
        assumed.append("micro-batch size")
        return _IMAGES_A_BATCH, rounds or 1
    if micro is None and measurement.seq_len and not strategy.offloaded and (measurement.metric in _RATES or whole):
        assumed.append("micro-batch size")
        micro = _likely_micro_batch(measurement.seq_len, whole, ranks)
    if micro is None:
        raise Gap("the micro-batch size is not stated")
    if whole is not None and whole >= micro * ranks:
        rounds = max(round(whole / (micro * ranks)), 1)
    rounds = rounds or 1
    stages = strategy.parallel.pp if strategy.parallel.kind == "auto" else 1
    if stages > 1 and (stack.pipeline_micro_batch or rounds < stages):
        # fewer micro-batches than stages: the table prints the local batch, which the pipeline cuts
        smaller = min(stack.pipeline_micro_batch or 1, micro)
        return smaller, max(micro // smaller, 1) * rounds
    return micro, rounds


def _likely_micro_batch(seq_len: int, whole: int | None, ranks: int) -> int:
    """Samples of a usual micro-batch; of a stated global batch the largest divisor that is no more."""
    most = max(_TOKENS_A_BATCH // seq_len, 1)
    if whole is None or whole < ranks:
        return most
    share = whole // ranks
    return max(size for size in range(1, min(most, share) + 1) if share % size == 0)


def _lengths(measurement: Measurement, stack: Stack, model: PublishedModel, method: MethodWords) -> LengthDistribution:
    """Tokens a sample: as the note or the data set says, else every sample at seq_len."""
    if model.kind == "image":
        return lengths_constant(1)
    limit = measurement.seq_len
    if limit is None and measurement.metric == "oom":
        return lengths_constant(_LEAST_TOKENS)
    if limit is None:
        raise Gap("the sequence length is not stated")
    if method.packed or stack.packing == "packed":
        return lengths_constant(limit)
    if stack.binned_frac < 1.0 and limit >= _BINS_FROM:
        return lengths_constant(round(stack.binned_frac * limit))
    described = read_lengths(measurement)
    if described is None:
        known = find_text_lengths(measurement.note)
        if known is None:
            return lengths_constant(limit)
        described = lengths_from_moments(known.tokens_mean, known.tokens_std, float(limit))
    drops = stack.overlong == "drop" or "dropped" in measurement.note.casefold()
    return dropped_beyond(described, limit) if drops else described.truncated(limit)


def _job(measurement: Measurement, stack: Stack, method: Method, task: Task, config: RunConfig) -> Job:
    optimizer: Any = first_built("optimizer", read_optimizer(measurement, method), OPTIMIZERS)
    return Job(
        model=measurement.model,
        task=task,
        data=DataSpec(num_samples=1, labels="label"),
        tune=TuneSpec(
            method=method,
            rank=read_rank(measurement, stack),
            targets=read_targets(measurement, stack),
            dropout=stack.lora_dropout,
            double_quant=reads_double_quant(measurement),
            unquantised="fp32" if stack.kbit_in_fp32 and not _is_sharded(config) else "16bit",
        ),
        train=TrainSpec(global_batch_size=config.global_batch_size, seq_len=measurement.seq_len, optimizer=optimizer),
    )


def _is_sharded(config: RunConfig) -> bool:
    """Whether ranks share frozen weights: then nothing is upcast, because a flat shard has one width.

    PEFT's prepare_model_for_kbit_training is left out for such models (trl/trainer/sft_trainer.py: is_sharded_qlora).
    """
    return config.parallel.dp_shard > 1 and config.parallel.zero_stage == 3
