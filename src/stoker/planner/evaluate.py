"""One candidate a cluster: the run configuration that finishes first among those that fit.

Ledgers are built once for each combination of techniques and shared by all devices and batch sizes, because a batch
size changes nothing in a ledger.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from stoker.core.efficiency import Correction, CorrectionKey, Efficiency
from stoker.core.estimate import MemoryEstimate, TimeEstimate
from stoker.core.hardware import Cluster
from stoker.core.job import Job
from stoker.core.ledger import Ledger, ModelArch
from stoker.core.plan import Candidate
from stoker.core.profile import DataProfile
from stoker.core.run_config import RunConfig
from stoker.estimators.ledger_sums import LedgerSums, sum_ledger
from stoker.estimators.memory import estimate_memory
from stoker.estimators.scenario import Scenario, cut_lengths
from stoker.estimators.tiers import schedule_of
from stoker.estimators.total_time import estimate_time
from stoker.planner.constraints import host_budgets
from stoker.planner.space import run_configs, smallest_configs
from stoker.techniques.passes import one_rank, whole_model
from stoker.techniques.runnable import planned_only

FIT_PROBABILITY = 0.9  # what a pick must reach; below it a candidate is shown but not recommended
_SIZES_TIMED = 3  # micro-batch sizes of one family that are always timed: the largest that fits and the next two
_WORTH_FRAC = 0.02  # a simpler configuration within this share of the fastest is preferred


@dataclass
class Evaluator:
    """Estimates candidates of one job; `is_here`: on this machine, so nothing is rented or downloaded."""

    job: Job
    profile: DataProfile
    arch: ModelArch
    efficiency: Efficiency
    is_here: bool = False
    _ledgers: dict[tuple[object, ...], tuple[Ledger, LedgerSums]] = field(default_factory=dict, init=False)
    _whole: dict[tuple[object, ...], Ledger] = field(default_factory=dict, init=False)
    _variants: dict[str, "Evaluator"] = field(default_factory=dict, init=False)
    _latest: Scenario | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.lengths = cut_lengths(self.job, self.profile.lengths, self.arch.max_position_embeddings)

    def scenario(self, cluster: Cluster, config: RunConfig) -> Scenario:
        """The inputs of one estimate; memory and time of a candidate ask for the same one after another."""
        if self._latest is not None and self._latest.cluster is cluster and self._latest.config is config:
            return self._latest
        ledger, sums = self._ledger(config)
        self._latest = Scenario(
            task=self.job.task,
            optimizer=self.job.train.optimizer,
            ledger=ledger,
            sums=sums,
            config=config,
            cluster=cluster,
            lengths=self.lengths,
            efficiency=self.efficiency,
            correction=self._correction(cluster, config),
            num_assumed=1 if self.arch.is_approximate else 0,
        )
        return self._latest

    def memory(self, cluster: Cluster, config: RunConfig) -> MemoryEstimate:
        """Memory of the fullest rank, with what own runs taught about this model or, on a GPU, about its stack."""
        scenario = self.scenario(cluster, config)
        memory = estimate_memory(scenario)
        if scenario.correction is not None or not self.efficiency.corrections or cluster.device.kind == "cpu":
            return memory
        told = self.efficiency.memory_correction(self._key(cluster, config), config.variant)
        if told is None:
            return memory
        from stoker.estimators.residual import FIXED, corrected, transferred  # only where own runs taught something

        same_variant = told.memory_variant in ("", config.variant)
        factors = {**told.memory_parts, FIXED: told.memory_fixed_bytes}
        return corrected(memory, transferred(factors, same_model=False, same_variant=same_variant))

    def time(self, cluster: Cluster, config: RunConfig) -> TimeEstimate:
        """Step and run time."""
        return estimate_time(self.scenario(cluster, config), self.job, self.profile, is_here=self.is_here)

    def candidate(self, cluster: Cluster) -> Candidate | None:
        """The best configuration of `cluster`: fastest of those that surely fit, else the one most likely to fit."""
        fitting: list[tuple[RunConfig, MemoryEstimate, TimeEstimate]] = []
        smallest: list[RunConfig] = []
        for family in run_configs(self.job, cluster, self.arch):
            if any(_makes_pointless(config, family[0]) for config, _memory, _time in fitting):
                continue
            timed = self._timed(cluster, family)
            smallest += [] if timed else [family[-1]]
            fitting += timed
        if fitting:
            config, memory, time = _fastest(fitting)
        elif smallest:
            tried = [(config, self.memory(cluster, config)) for config in smallest]
            config, memory = min(tried, key=lambda pair: pair[1].expected_bytes)
            time = self.time(cluster, config)
        else:
            return None
        return Candidate(
            rank=0,
            cluster=cluster,
            run_config=config,
            memory=memory,
            time=time,
            schedule=schedule_of(self.scenario(cluster, config)) if config.placement == "tiers" else None,
            planned_only=planned_only(config, self.arch),
        )

    def _timed(
        self, cluster: Cluster, family: Sequence[RunConfig]
    ) -> list[tuple[RunConfig, MemoryEstimate, TimeEstimate]]:
        """The largest sizes of `family` that fit, with their times; smaller ones for as long as each is faster.

        A larger micro-batch fills the GPU better and pads further: where lengths differ much, a small one wins.
        """
        timed = [
            (config, memory, self.time(cluster, config)) for config, memory in self._fitting_sizes(cluster, family)
        ]
        if len(timed) < 2:
            return timed
        for config in family[family.index(timed[-1][0]) + 1 :]:
            if timed[-1][2].step_s >= timed[-2][2].step_s:
                break
            timed.append((config, self.memory(cluster, config), self.time(cluster, config)))
        return timed

    def variant(self, name: str, job: Job) -> "Evaluator":
        """The evaluator of `job`, another form of this one's, kept under `name` so that its ledgers are built once."""
        if job == self.job:
            return self
        if name not in self._variants:
            self._variants[name] = replace(self, job=job)
        return self._variants[name]

    def _host_has_room(self, cluster: Cluster, memory: MemoryEstimate) -> bool:
        if not memory.tiers.get("dram"):
            return True
        budgets = host_budgets(self.job, cluster)
        return all(room is None or memory.tiers.get(tier, 0) <= room for tier, room in budgets.items())

    def least_memory(self, cluster: Cluster) -> tuple[RunConfig, MemoryEstimate] | None:
        """The configuration of `cluster` that needs the least memory, whatever it costs in time."""
        tried = [(config, self.memory(cluster, config)) for config in smallest_configs(self.job, cluster, self.arch)]
        return min(tried, key=lambda pair: pair[1].expected_bytes, default=None)

    def _fitting_sizes(self, cluster: Cluster, family: Sequence[RunConfig]) -> list[tuple[RunConfig, MemoryEstimate]]:
        """The largest micro-batches of `family` (largest first) that surely fit, at most `_SIZES_TIMED` of them.

        Memory grows with the micro-batch, so the border is found by bisection; a share taken in one piece needs no
        sums of gradients, so it stands apart.
        """
        if self._state_is_too_large(cluster, family[0]):
            return []
        seen: dict[int, MemoryEstimate] = {}

        def fits(index: int) -> bool:
            if index not in seen:
                seen[index] = self.memory(cluster, family[index])
            return seen[index].fit_probability >= FIT_PROBABILITY and self._host_has_room(cluster, seen[index])

        whole = 1 if family[0].gradient_accumulation_steps == 1 else 0
        found = [0] if whole and fits(0) else []
        first = _first_true(fits, whole, len(family))
        found += [index for index in range(first, min(first + _SIZES_TIMED, len(family))) if fits(index)]
        return [(family[index], seen[index]) for index in found[:_SIZES_TIMED]]

    def _state_is_too_large(self, cluster: Cluster, config: RunConfig) -> bool:
        """Weights and state alone, which no batch size changes, exceed the device: most of a search ends here."""
        if config.placement != "hbm" or self.efficiency.corrections:
            return False
        sums = self._ledger(config)[1]
        return sums.params_bytes + sums.optimizer_bytes > cluster.device.visible_bytes

    def _ledger(self, config: RunConfig) -> tuple[Ledger, LedgerSums]:
        several = config.gradient_accumulation_steps > 1
        form = (config.precision, config.recompute, config.attention, several)
        key = (*form, config.parallel, config.placement)
        if key not in self._ledgers:
            if form not in self._whole:
                self._whole[form] = whole_model(self.arch, self.job, config)
            ledger = one_rank(self._whole[form], config)
            self._ledgers[key] = ledger, sum_ledger(ledger)
        return self._ledgers[key]

    def _correction(self, cluster: Cluster, config: RunConfig) -> Correction | None:
        if not self.efficiency.corrections:
            return None
        return self.efficiency.correction(self._key(cluster, config))

    def _key(self, cluster: Cluster, config: RunConfig) -> CorrectionKey:
        return CorrectionKey(
            device=cluster.device.name,
            model_family=self.arch.family,
            precision=config.precision,
            method=self.job.tune.method,
            num_params=self.arch.num_params,
            num_trainable=self._ledger(config)[0].num_trainable,
            loss=config.loss,
            attention=config.attention,
        )


def _first_true(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The first index in [low, high) where `holds`, which stays true from there on; `high` where it never does."""
    if low >= high or holds(low):
        return low
    if not holds(high - 1):
        return high
    false, true = low, high - 1
    while true - false > 1:
        middle = (false + true) // 2
        false, true = (false, middle) if holds(middle) else (middle, true)
    return true


def _makes_pointless(fitting: RunConfig, other: RunConfig) -> bool:
    """Recompute and chunks buy memory with time: pointless where the whole share fits at once without them."""
    return (
        fitting.parallel == other.parallel
        and fitting.gradient_accumulation_steps == 1
        and (fitting.recompute, fitting.loss) == ("none", "eager")
        and (other.recompute, other.loss) != ("none", "eager")
    )


def _fastest(
    fitting: list[tuple[RunConfig, MemoryEstimate, TimeEstimate]],
) -> tuple[RunConfig, MemoryEstimate, TimeEstimate]:
    """The fastest; among those within 2 % of it the plainest and smallest, so that ties are settled the same way."""
    limit = min(time.step_s for _config, _memory, time in fitting) * (1.0 + _WORTH_FRAC)
    near = [entry for entry in fitting if entry[2].step_s <= limit]
    return min(near, key=lambda entry: _plainness(entry[0], entry[1]))


def _plainness(config: RunConfig, memory: MemoryEstimate) -> tuple[object, ...]:
    return (
        config.recompute != "none",
        config.loss != "eager",
        config.parallel.dp_shard > 1,
        config.gradient_accumulation_steps,
        memory.expected_bytes,
    )
