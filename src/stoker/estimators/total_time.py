"""Seconds of the whole run, by lines, in the order in which they pass (`LINES`).

Small jobs are mostly not steps, so every line is priced; lines that nobody measured here are marked assumed. Restarts
cost nothing until an offer that can be interrupted is chosen (`with_restarts`).
"""

from dataclasses import replace
from math import ceil, sqrt
from typing import Final

from stoker.core import lr_schedule
from stoker.core.estimate import Source, TimeEstimate, weakest
from stoker.core.job import Job
from stoker.core.job_checks import save_minutes
from stoker.core.profile import DataProfile
from stoker.core.save_interval import DEFAULT_MTBF_S
from stoker.core.units import MINUTE_S
from stoker.estimators.scenario import Scenario, mean_batch
from stoker.estimators.step_time import StepTime, estimate_step
from stoker.estimators.utilisation import model_flops_per_step
from stoker.estimators.widening import widened_spread, widening
from stoker.techniques.capture import capture

LINES: Final = (
    "boot",
    "image",
    "download",
    "load",
    "tokenise",
    "compile",
    "warm_up",
    "steps",
    "evaluation",
    "saves",
    "restarts",
)
_AGAIN: Final = ("boot", "image", "download", "load", "compile", "warm_up")  # tokens are cached by then, with the saves


def steps_per_epoch(job: Job, profile: DataProfile) -> int:
    """Optimizer steps of one epoch: the last one may hold fewer samples."""
    return lr_schedule.steps_per_epoch(profile.num_samples, job.train.global_batch_size)


def num_steps(job: Job, profile: DataProfile) -> int:
    """Optimizer steps of the run."""
    train = job.train
    return lr_schedule.total_steps(profile.num_samples, train.global_batch_size, train.epochs, train.max_steps)


def estimate_time(scenario: Scenario, job: Job, profile: DataProfile, *, is_here: bool) -> TimeEstimate:
    """Step and total time. `is_here`: the machine is on and the files are there, so boot and download are zero."""
    step = estimate_step(scenario)
    steps = num_steps(job, profile)
    lines = {
        **_start_lines(scenario, profile, is_here=is_here),
        "steps": steps * step.step_s,
        "evaluation": num_evaluations(job, profile) * _evaluation_s(scenario, profile, step),
        "saves": num_saves(job, profile, steps * step.step_s) * save_s(scenario),
        "restarts": 0.0,
    }
    total = sum(lines.values())
    low, high = _interval(scenario, lines)
    shares = scenario.efficiency.speed(scenario.cluster.device, scenario.ledger.compute_dtype)
    assumed = (Source.ASSUMED,) if scenario.num_assumed else ()
    source = Source.CALIBRATED if scenario.correction else weakest(Source.ANALYTIC, shares.source, *assumed)
    return TimeEstimate(
        step_s=step.step_s,
        step_terms=step.terms,
        total_s=total,
        total_terms={name: lines[name] for name in LINES},
        low_s=low,
        high_s=high,
        num_steps=steps,
        source=source,
        correction_factor=scenario.correction.time_factor if scenario.correction else 1.0,
        model_flops=model_flops_per_step(scenario),
        restart_s=sum(lines[name] for name in _AGAIN)
        + 0.5 * steps * step.step_s / num_saves(job, profile, steps * step.step_s),
    )


def with_restarts(time: TimeEstimate, mtbf_s: float = DEFAULT_MTBF_S) -> TimeEstimate:
    """`time` on a machine that is taken away every `mtbf_s` on average (spot; assumed): the expected restarts beside.

    Each costs `restart_s`; to first order, because a run that is much longer than `mtbf_s` also restarts in restarts.
    """
    extra = time.total_s / mtbf_s * time.restart_s
    if extra <= 0.0:
        return time
    return replace(
        time,
        total_s=time.total_s + extra,
        total_terms={**time.total_terms, "restarts": extra},
        low_s=time.low_s,  # at best nothing is interrupted
        high_s=time.high_s + 2.0 * extra,
    )


def num_evaluations(job: Job, profile: DataProfile) -> int:
    """Evaluations of the run: every epoch or every so many steps, and once at the end."""
    if profile.num_eval_samples <= 0:
        return 0
    steps = num_steps(job, profile)
    every = steps_per_epoch(job, profile) if job.eval.every == "epoch" else int(job.eval.every)
    return max(1, ceil(steps / every - 1e-9))


def _start_lines(scenario: Scenario, profile: DataProfile, *, is_here: bool) -> dict[str, float]:
    constants = scenario.efficiency.constants
    weights = scenario.sums.weights_unsharded_bytes
    files = 2.0 * scenario.ledger.arch.num_params  # what the hub holds: 16-bit weights, mostly
    measured = scenario.correction.start_s if scenario.correction else None
    lines = {
        "boot": 0.0 if is_here else constants["boot_s"],
        "image": 0.0 if is_here else constants["install_s"],
        "download": 0.0 if is_here else files / constants["download_bytes_per_s"],
    }
    if measured is not None:  # from the command to the first step: one figure, whose parts nobody timed
        return {**lines, "load": measured, "tokenise": 0.0, "compile": 0.0, "warm_up": 0.0}
    tokens = 0.0 if scenario.is_image else (profile.num_samples + profile.num_eval_samples) * profile.lengths.mean
    return {
        **lines,
        "load": constants["import_s"] + weights / constants["load_bytes_per_s"],
        "tokenise": tokens / constants["tokenise_tokens_per_s"],
        "compile": capture(scenario.config.capture).warm_up_s,
        "warm_up": constants["warm_up_s"] if scenario.cluster.device.kind != "cpu" else 0.0,
    }


def _evaluation_s(scenario: Scenario, profile: DataProfile, step: StepTime) -> float:
    """Forward over the evaluation samples, spread over the ranks, at the training micro-batch size."""
    batch = mean_batch(scenario)
    ranks = scenario.config.parallel.data_parallel
    batches = ceil(profile.num_eval_samples / (batch.samples * ranks))
    factor = scenario.correction.time_factor if scenario.correction else 1.0
    return batches * (step.micro_batch.forward.total_s * factor) + scenario.efficiency.constants["evaluation_fixed_s"]


def num_saves(job: Job, profile: DataProfile, training_s: float) -> int:
    """Checkpoints of the run: by steps, epochs, minutes, or (auto) by Young's interval of about half an hour."""
    steps = num_steps(job, profile)
    every = job.save.every
    if every == "epoch":
        return max(1, ceil(steps / steps_per_epoch(job, profile) - 1e-9))
    if isinstance(every, int):
        return max(1, ceil(steps / every))
    minutes = save_minutes(every) or 30.0
    return max(1, ceil(training_s / (minutes * MINUTE_S)))


def save_s(scenario: Scenario) -> float:
    """One checkpoint: weights of what learns, masters and optimizer state, over the disk's rate."""
    parallel = scenario.config.parallel
    parts = parallel.shard_ranks * parallel.tp * (parallel.pp if parallel.kind == "auto" else 1)
    state = scenario.sums.optimizer_bytes * parts
    learning = min(scenario.sums.weights_unsharded_bytes, 4.0 * scenario.sums.trainable_params)
    constants = scenario.efficiency.constants
    return constants["save_fixed_s"] + (state + learning) / constants["save_bytes_per_s"]


def _interval(scenario: Scenario, lines: dict[str, float]) -> tuple[float, float]:
    """5 % and 95 % points of the total: the steps by their family's spread, the rest by a wider one."""
    constants = scenario.efficiency.constants
    if scenario.correction:
        training = constants["spread_calibrated"]
    else:
        dtype = scenario.ledger.compute_dtype
        training = scenario.efficiency.speed(scenario.cluster.device, dtype).spread_frac
    training = widened_spread(training, widening(scenario.num_assumed))
    stepping = lines["steps"] + lines["evaluation"]
    rest = sum(lines.values()) - stepping
    up = sqrt((training * stepping) ** 2 + (constants["spread_overheads"] * rest) ** 2)
    total = sum(lines.values())
    down = sqrt((training / (1.0 + training) * stepping) ** 2 + (0.5 * constants["spread_overheads"] * rest) ** 2)
    return total - down, total + up
