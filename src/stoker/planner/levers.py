"""Levers: what would make a candidate need less memory, each priced by estimating the changed configuration anew.

A lever changes one thing of the pick. What the learning curve hangs on (optimizer, sequence length, method) is marked,
because no plan may change that by itself. A lever that this version cannot run is none.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from stoker.core.errors import StokerError
from stoker.core.explanation import Lever
from stoker.core.hardware import Cluster
from stoker.core.i18n import _
from stoker.core.job import Job, ParallelSpec
from stoker.core.plan import Candidate
from stoker.core.run_config import Parallel, RunConfig
from stoker.core.units import GB
from stoker.estimators.memory import estimate_memory
from stoker.estimators.scenario import Scenario
from stoker.estimators.step_time import estimate_step
from stoker.planner.constraints import reject_before
from stoker.planner.evaluate import FIT_PROBABILITY, Evaluator
from stoker.planner.space import micro_batch_sizes
from stoker.techniques.loss import LOSSES
from stoker.techniques.optimizer import OPTIMIZERS
from stoker.techniques.placement import PLACEMENTS

_SHOWN = 3
_SHARDS = (2, 4, 8)
_ADAPTIVE = ("adamw", "adafactor")  # near relatives of AdamW: SGD is another method of learning, not a smaller state
_CHEAPER_METHODS: Mapping[str, tuple[str, ...]] = {"full": ("lora", "qlora"), "lora": ("qlora",), "dora": ("qlora",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changed:
    """A configuration with one thing changed; `change`: the job's keys for it."""

    name: str
    text: str
    change: Mapping[str, str]
    job: Job
    config: RunConfig
    cluster: Cluster
    changes_learning: bool = False


def find_levers(evaluator: Evaluator, candidate: Candidate, *, shown: int = _SHOWN) -> tuple[Lever, ...]:
    """The `shown` levers of `candidate` that help most: what alone makes it fit first, by its price; then by bytes.

    One lever of each kind: of those that make it fit the cheapest in time, else the one that saves most.
    """
    config, cluster = candidate.run_config, candidate.cluster
    before = (
        estimate_memory(_plain_scenario(evaluator, evaluator.job, config, cluster)),
        _step_s(evaluator, evaluator.job, config, cluster),
    )
    expected, step_s = before[0].expected_bytes, before[1]
    fitting = before[0].fit_probability >= FIT_PROBABILITY
    best: dict[str, Lever] = {}
    for changed in _changes(evaluator, candidate):
        lever = _priced(evaluator, changed, expected, step_s)
        if lever is None or lever.saved_bytes <= 0.005 * expected:
            continue
        known = best.get(lever.name)
        if known is None or _order(lever, fitting=fitting) < _order(known, fitting=fitting):
            best[lever.name] = lever
    if fitting:
        return tuple(sorted(best.values(), key=lambda lever: -lever.saved_bytes))[:shown]
    return tuple(sorted(best.values(), key=lambda lever: _order(lever, fitting=False)))[:shown]


def adapter_note(evaluator: Evaluator, candidate: Candidate) -> str:
    """That LoRA is worse here, where it needs more memory than full tuning (case 3); else empty."""
    job, config, cluster = evaluator.job, candidate.run_config, candidate.cluster
    if job.tune.method not in ("full", "lora", "dora"):
        return ""
    adapter = "lora" if job.tune.method == "full" else job.tune.method
    needed = []
    for method in (adapter, "full"):
        tuned = job if method == job.tune.method else replace(job, tune=replace(job.tune, method=cast(Any, method)))
        try:
            needed.append(estimate_memory(_plain_scenario(evaluator, tuned, config, cluster)).expected_bytes)
        except (StokerError, LookupError, ValueError):
            return ""
    if needed[0] <= needed[1]:
        return ""
    return _("{method} is worse here: {more:.2f} GB with it, {less:.2f} GB with full tuning").format(
        method=adapter, more=needed[0] / GB, less=needed[1] / GB
    )


def _order(lever: Lever, *, fitting: bool) -> tuple[float, ...]:
    """Ascending: best first. Time counts times GPUs, so that eight of them are not a cheap way."""
    price = max(lever.step_s * lever.num_gpus, 1e-12)
    if fitting:  # it fits already, so what counts is how much smaller it gets for its price
        return (0.0, -lever.saved_bytes / price)
    enough = lever.fit_probability >= FIT_PROBABILITY
    return (0.0, float(lever.changes_learning), price) if enough else (1.0, -lever.saved_bytes / price)


def _priced(evaluator: Evaluator, changed: _Changed, expected: int, step_s: float) -> Lever | None:
    """The lever with its bytes and its price, or None where it cannot be run or estimated."""
    if reject_before(changed.job, changed.cluster) is not None:
        return None
    try:
        memory = estimate_memory(_plain_scenario(evaluator, changed.job, changed.config, changed.cluster))
        seconds = _step_s(evaluator, changed.job, changed.config, changed.cluster)
    except (StokerError, LookupError, ValueError):
        return None
    return Lever(
        name=changed.name,
        text=changed.text,
        change=changed.change,
        saved_bytes=expected - memory.expected_bytes,
        expected_bytes=memory.expected_bytes,
        fit_probability=round(memory.fit_probability, 6),
        step_s=seconds,
        num_gpus=changed.cluster.num_gpus,
        slower_frac=seconds / step_s - 1.0 if step_s > 0 else 0.0,
        changes_learning=changed.changes_learning,
    )


def _plain_scenario(evaluator: Evaluator, job: Job, config: RunConfig, cluster: Cluster) -> Scenario:
    """The scenario without corrections: they hold for one configuration, and both sides must be alike."""
    other = evaluator if job == evaluator.job else replace(evaluator, job=job)
    return replace(other.scenario(cluster, config), correction=None)


def _step_s(evaluator: Evaluator, job: Job, config: RunConfig, cluster: Cluster) -> float:
    return estimate_step(_plain_scenario(evaluator, job, config, cluster)).step_s


def _changes(evaluator: Evaluator, candidate: Candidate) -> Iterator[_Changed]:
    for make in _KINDS:
        yield from make(evaluator, candidate)


def _same(evaluator: Evaluator, candidate: Candidate, **changes: Any) -> _Changed:
    """The candidate as it is, but for `changes`."""
    parts: dict[str, Any] = {
        "job": evaluator.job,
        "config": candidate.run_config,
        "cluster": candidate.cluster,
        **changes,
    }
    return _Changed(**parts)


def _loss_kernel(evaluator: Evaluator, candidate: Candidate) -> Iterator[_Changed]:
    if evaluator.job.task != "causal_lm":
        return
    for technique in LOSSES:
        if technique.name != candidate.run_config.loss:
            yield _same(
                evaluator,
                candidate,
                name="loss",
                text=_("another loss kernel: {name}").format(name=technique.name),
                change={"run.loss": technique.name},
                config=replace(candidate.run_config, loss=cast(Any, technique.name)),
            )


def _recompute(evaluator: Evaluator, candidate: Candidate) -> Iterator[_Changed]:
    if candidate.run_config.recompute == "full" or not any(g.kind == "block" for g in evaluator.arch.groups):
        return
    kinds = ("full",) if candidate.run_config.recompute == "selective" else ("selective", "full")
    for kind in kinds:
        yield _same(
            evaluator,
            candidate,
            name="recompute",
            text=_("recompute activations ({kind})").format(kind=kind),
            change={"run.recompute": kind},
            config=replace(candidate.run_config, recompute=cast(Any, kind)),
        )


def _micro_batch(evaluator: Evaluator, candidate: Candidate) -> Iterator[_Changed]:
    """Every smaller micro-batch; the global batch, and so the learning, stays."""
    config = candidate.run_config
    per_rank = config.micro_batch_size * config.gradient_accumulation_steps
    run = replace(evaluator.job.run, micro_batch_size="auto")
    sizes = [s for s in micro_batch_sizes(replace(evaluator.job, run=run), per_rank) if s < config.micro_batch_size]
    for size in dict.fromkeys([*sizes[:3], *sizes[-1:]]):
        yield _same(
            evaluator,
            candidate,
            name="micro_batch",
            text=_("smaller micro-batch: {size}").format(size=size),
            change={"run.micro_batch_size": str(size)},
            config=replace(config, micro_batch_size=size, gradient_accumulation_steps=per_rank // size),
        )


def _optimizer(evaluator: Evaluator, candidate: Candidate) -> Iterator[_Changed]:
    current = evaluator.job.train.optimizer
    for technique in OPTIMIZERS:
        if technique.name != current and technique.name.startswith(_ADAPTIVE):
            train = replace(evaluator.job.train, optimizer=cast(Any, technique.name))
            yield _same(
                evaluator,
                candidate,
                name="optimizer",
                text=_("another optimizer: {name}").format(name=technique.name),
                change={"train.optimizer": technique.name},
                job=replace(evaluator.job, train=train),
                changes_learning=True,
            )


def _seq_len(evaluator: Evaluator, candidate: Candidate) -> Iterator[_Changed]:
    longest = int(evaluator.lengths.maximum)
    if evaluator.arch.modality == "image" or longest < 64:
        return
    half = longest // 2
    yield _same(
        evaluator,
        candidate,
        name="seq_len",
        text=_("shorter sequences: cut at {tokens} tokens").format(tokens=half),
        change={"train.seq_len": str(half)},
        job=replace(evaluator.job, train=replace(evaluator.job.train, seq_len=half)),
        changes_learning=True,
    )


def _method(evaluator: Evaluator, candidate: Candidate) -> Iterator[_Changed]:
    for method in _CHEAPER_METHODS.get(evaluator.job.tune.method, ()):
        tune = replace(evaluator.job.tune, method=cast(Any, method), freeze=[])
        yield _same(
            evaluator,
            candidate,
            name=method,
            text=_("{method} instead of {now}").format(method=method, now=evaluator.job.tune.method),
            change={"tune.method": method, **({"tune.freeze": "[]"} if evaluator.job.tune.freeze else {})},
            job=replace(evaluator.job, tune=tune),
            changes_learning=True,
        )


def _attention(evaluator: Evaluator, candidate: Candidate) -> Iterator[_Changed]:
    if candidate.run_config.attention == "eager":
        yield _same(
            evaluator,
            candidate,
            name="attention",
            text=_("fused attention"),
            change={"run.attention": "sdpa"},
            config=replace(candidate.run_config, attention="sdpa"),
        )


def _tiers(evaluator: Evaluator, candidate: Candidate) -> Iterator[_Changed]:
    """State and activations in host memory or on flash, where this version can place them."""
    if candidate.run_config.placement != "hbm":
        return
    for technique in PLACEMENTS:
        if technique.name != "hbm":
            name = cast(Any, technique.name)
            yield _same(
                evaluator,
                candidate,
                name="placement",
                text=_("state in host memory (placement {name})").format(name=name),
                change={"run.placement": name},
                job=replace(evaluator.job, run=replace(evaluator.job.run, placement=name)),
                config=replace(candidate.run_config, placement=name),
            )


def _shards(evaluator: Evaluator, candidate: Candidate) -> Iterator[_Changed]:
    """FSDP over more GPUs of the same kind in one machine; the global batch stays."""
    config, cluster = candidate.run_config, candidate.cluster
    if cluster.device.kind == "cpu" or cluster.nodes > 1:
        return
    for count in _SHARDS:
        batch = evaluator.job.train.global_batch_size
        sharded_already = config.parallel.dp_shard == cluster.num_gpus and count <= cluster.num_gpus
        if sharded_already or batch % count:
            continue
        micro = min(config.micro_batch_size, batch // count)
        while (batch // count) % micro:
            micro -= 1
        change = {"run.parallel": f"{{dp_shard: {count}}}", "hardware.num_gpus": str(count)}
        if evaluator.job.hardware.max_gpus < count:
            change["hardware.max_gpus"] = str(count)
        if evaluator.job.run.micro_batch_size not in ("auto", micro):
            change["run.micro_batch_size"] = str(micro)
        run = replace(evaluator.job.run, parallel=ParallelSpec(dp_shard=count), micro_batch_size="auto")
        yield _same(
            evaluator,
            candidate,
            name="shards",
            text=_("sharded over {count} GPUs").format(count=count),
            change=change,
            job=replace(evaluator.job, run=run),
            config=replace(
                config,
                parallel=Parallel(dp_shard=count),
                micro_batch_size=micro,
                gradient_accumulation_steps=batch // (count * micro),
            ),
            cluster=replace(cluster, num_gpus=count),
        )


_KINDS: tuple[Callable[[Evaluator, Candidate], Iterator[_Changed]], ...] = (
    _loss_kernel,
    _recompute,
    _micro_batch,
    _optimizer,
    _seq_len,
    _method,
    _attention,
    _tiers,
    _shards,
)
