"""Seconds of one optimizer step, by terms: compute, optimizer, exposed_comm, bubble, host_overhead, data_wait.

The mean micro-batch times the number of micro-batches, the update, and the communication that compute does not hide.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log2

from stoker.core.run_config import Parallel
from stoker.estimators.comm import comm_time
from stoker.estimators.compute import MicroBatchTime, PassTime, micro_batch_time, optimizer_time
from stoker.estimators.scenario import Scenario, mean_batch
from stoker.estimators.tiers import assumed_speeds, schedule_of
from stoker.techniques.placement.replay import replay_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """`step_s`, its terms (which sum to it), and the micro-batch that it was made of."""

    step_s: float
    terms: Mapping[str, float]
    micro_batch: MicroBatchTime


def estimate_step(scenario: Scenario) -> StepTime:
    """Time of a mean optimizer step of `scenario`; a correction from own runs scales every term."""
    constants = scenario.efficiency.constants
    rounds = scenario.config.gradient_accumulation_steps
    batch = mean_batch(scenario)
    micro = micro_batch_time(scenario, batch)
    forward_s, backward_s = rounds * micro.forward.total_s, rounds * micro.backward.total_s
    update, transfer_s = _update_and_transfer(scenario, forward_s, backward_s)
    parallel = scenario.config.parallel
    ranks = 1 if parallel.kind == "layer_split" else parallel.world_size
    late = constants["straggler_frac"] * log2(ranks) if ranks > 1 else 0.0
    device_s = rounds * micro.device_s
    issue_s = rounds * (micro.total_s + _one_lock_s(parallel, micro)) + max(update.device_s, update.host_s)
    comm = comm_time(scenario, batch.tokens, forward_s, backward_s)
    hooks_s = constants["host_s_per_parallel_step"] if ranks > 1 else 0.0
    terms = {
        "compute": device_s,
        "optimizer": update.device_s,
        "exposed_comm": comm.exposed_s + late * issue_s + hooks_s,
        "exposed_transfer": transfer_s,
        "bubble": comm.bubble_s,
        "host_overhead": issue_s - device_s - update.device_s + constants["host_s_per_step"],
    }
    busy = sum(terms.values())
    terms["data_wait"] = max(_loading_s(scenario) - busy, 0.0) if scenario.stack.waits_for_data else 0.0
    factor = scenario.correction.time_factor if scenario.correction else 1.0
    scaled = {name: seconds * factor for name, seconds in terms.items()}
    return StepTime(step_s=sum(scaled.values()), terms=scaled, micro_batch=micro)


def _update_and_transfer(scenario: Scenario, forward_s: float, backward_s: float) -> tuple[PassTime, float]:
    """(the update in GPU memory, exposed seconds of tiers with the update that runs there)."""
    update = optimizer_time(scenario)
    if scenario.config.placement != "tiers":
        return update, 0.0
    speeds = assumed_speeds(scenario.cluster, scenario.efficiency.constants)
    found = replay_seconds(schedule_of(scenario), speeds, forward_s=forward_s, backward_s=backward_s)
    return replace(update, device_s=update.device_s * found.resident_frac), found.exposed_s


def _one_lock_s(parallel: Parallel, micro: MicroBatchTime) -> float:
    """What DataParallel's threads lose: they launch the kernels of all replicas one after the other."""
    if parallel.kind != "data_parallel":
        return 0.0
    replicas = parallel.dp_replicate
    both = (micro.forward, micro.backward)
    return sum(max(one.device_s, replicas * one.host_s) - one.total_s for one in both)


def _loading_s(scenario: Scenario) -> float:
    """Seconds that one rank's loader needs for the samples of a step, its workers side by side."""
    constants = scenario.efficiency.constants
    config = scenario.config
    samples = config.micro_batch_size * config.gradient_accumulation_steps
    per_sample = constants["load_s_per_text"]
    if scenario.is_image:
        pixels = ((scenario.ledger.arch.image_size or 224) / 224.0) ** 2
        per_sample = constants["load_s_per_image"] + constants["load_s_per_image_224"] * pixels
    return samples * per_sample / max(config.workers, 1)
