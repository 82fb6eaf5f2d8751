"""Predictions of a trial in its row's own quantity and unit: expected, low, high, and the probability of fitting.

Memory follows what was read: allocated bytes, reserved bytes (the estimate without its context) or the process (all
of it). GB is 1e9, GiB 2^30. Throughputs are those of one GPU, as the tables print them; their low is the slow end.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from stoker.core.estimate import MemoryEstimate
from stoker.core.stack import Reading
from stoker.core.units import GB, GIB
from stoker.estimators.memory import estimate_memory, estimate_ranks
from stoker.estimators.scenario import Scenario
from stoker.estimators.step_time import estimate_step
from stoker.estimators.widening import widened_bytes, widened_spread, widening
from stoker.validation.totals import read_training, total_terms
from stoker.validation.trial import NotScored, Trial
from stoker.validation.wording import Gap

FIT_ONLY: Final = ("oom", "ran")  # rows that say only whether it fitted
_OVERHEAD_FRAC: Final = 0.1  # of a whole training: start, loading and saving, which tables seldom describe


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """`expected`, `low`, `high` (5 % and 95 %) in the row's unit; terms in bytes or seconds, for explaining.

    `step_s`: seconds of the whole optimizer step where time was predicted; `memory`: the estimate where memory was.
    """

    expected: float
    low: float
    high: float
    fit_probability: float | None = None
    step_s: float | None = None
    memory: MemoryEstimate | None = None
    terms: Mapping[str, float] = field(default_factory=dict)


def predict(trial: Trial) -> Prediction | NotScored:
    """What the estimators say about the row."""
    metric = trial.measurement.metric
    if metric == "peak_mem_gb":
        return _memory(trial)
    if metric in FIT_ONLY:
        estimate = estimate_memory(trial.scenario if metric == "oom" else trial.fitting)
        fits = estimate.fit_probability
        return Prediction(
            expected=1.0 - fits,
            low=0.0,
            high=1.0,
            fit_probability=fits,
            terms={name: float(value) for name, value in estimate.terms.items()},
        )
    if metric in ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s_per_gpu"):
        return _time(trial)
    if metric == "seconds_total":
        return _total(trial)
    return NotScored(measurement=trial.measurement, reason=f"metric {metric}: not predicted")


def reading_of(unit: str, usual: Reading) -> Reading:
    """What a memory unit says was read; a bare one: `usual`."""
    words = unit.casefold()
    if re.search(r"smi\b|process|nvml|nvtop|gpustat", words):
        return "process"
    if "allocated" in words or "active" in words:
        return "allocated"
    return "reserved" if "reserved" in words else usual


def bytes_of_unit(unit: str) -> int:
    """Bytes of one of `unit`: GiB, MiB and MB as they say, else GB."""
    words = unit.casefold()
    if "gib" in words:
        return GIB
    if "mib" in words:
        return 2**20
    return 10**6 if re.search(r"\bmb\b", words) else round(GB)


def units_per_second(unit: str) -> float:
    """How many of a step time's unit a second is: s, ms or minutes."""
    words = unit.casefold().lstrip()
    if re.match(r"ms\b|msec|millisec", words):
        return 1000.0
    return 1.0 / 60.0 if re.match(r"min(ute)?s?\b", words) else 1.0


def units_per_rate(unit: str, num_gpus: int) -> float:
    """How many of a rate's unit one a second and GPU is: thousands, and totals over the GPUs where it says so."""
    words = unit.casefold().lstrip()
    share = 1e-3 if re.match(r"k[ -]?(tok|sam|im|seq)|thousand", words) else 1.0
    of_one = re.search(r"/ ?gpu|per gpu", words)
    of_all = re.search(r"total|aggregate|all gpus|cluster|over \d+ gpus", words)
    return share * num_gpus if of_all and not of_one else share


def _memory(trial: Trial) -> Prediction:
    estimate = _rank_read(trial)
    unit = trial.measurement.unit
    size = bytes_of_unit(unit)
    reading = reading_of(unit, trial.scenario.stack.memory_reading)
    value = memory_in(estimate, reading) / size
    if trial.scenario.ledger.states_may_page and reading != "process":
        value -= estimate.terms["optimizer_states"] / size  # managed memory, which torch's counters do not see
    wider = _wider(trial)
    scale = value / estimate.expected_bytes
    low, high = widened_bytes(scale * estimate.low_bytes, scale * estimate.high_bytes, wider)
    context = estimate.terms.get("framework", 0) / size
    if trial.scenario.stack.is_guess and _leaves_reading_open(unit):
        low, high = min(low, estimate.peak_allocated_bytes / size / wider), high + context
    return Prediction(
        expected=value,
        low=low,
        high=max(value, min(high, _most_bytes(estimate, unit) / size)),
        fit_probability=_fit(trial),
        memory=estimate,
        terms={name: float(term) for name, term in estimate.terms.items()},
    )


def _leaves_reading_open(unit: str) -> bool:
    """Whether a memory unit does not say what was read: then the driver's figure, context included, may stand there."""
    return reading_of(unit, "process") != reading_of(unit, "allocated")


def _most_bytes(estimate: MemoryEstimate, unit: str) -> float:
    """The most that a run can have held: all that its GPU shows, without the context in torch's own readings."""
    said = reading_of(unit, "process")
    return estimate.visible_bytes - (0 if said == "process" else estimate.terms.get("framework", 0))


def _rank_read(trial: Trial) -> MemoryEstimate:
    """The fullest GPU, or the one that the note names (`gpu0`) where a layer split prints one peak a GPU."""
    ranks = estimate_ranks(trial.scenario)
    named = re.match(r"gpu(\d+)\b", trial.measurement.note.casefold())
    if named and len(ranks) > 1:
        return ranks[0] if int(named[1]) == 0 else ranks[-1]
    return max(ranks, key=lambda estimate: estimate.expected_bytes)


def memory_in(estimate: MemoryEstimate, reading: Reading) -> float:
    """Bytes of `estimate` as `reading` counts them."""
    if reading == "allocated":
        return float(estimate.peak_allocated_bytes)
    if reading == "reserved":
        return float(estimate.expected_bytes - estimate.terms.get("framework", 0))
    return float(estimate.expected_bytes)


def _fit(trial: Trial) -> float:
    return estimate_memory(trial.fitting).fit_probability


def _time(trial: Trial) -> Prediction:
    scenario, measurement = trial.scenario, trial.measurement
    step = estimate_step(scenario)
    seconds = step.step_s * scenario.stack.time_factor
    spread = widened_spread(time_spread(scenario), _wider(trial))
    low_s, high_s = seconds / (1.0 + spread), seconds * (1.0 + spread)
    fits = _fit(trial)
    terms = {name: value * scenario.stack.time_factor for name, value in step.terms.items()}
    if measurement.metric == "step_time_s":
        share = 1.0 / scenario.config.gradient_accumulation_steps if "micro-batch" in _first(measurement.unit) else 1.0
        share *= units_per_second(measurement.unit)
        return Prediction(
            expected=seconds * share,
            low=low_s * share,
            high=high_s * share,
            fit_probability=fits,
            step_s=seconds,
            terms=terms,
        )
    work = work_per_gpu(scenario, in_tokens=measurement.metric.startswith("tokens"))
    work *= units_per_rate(measurement.unit, scenario.config.parallel.world_size)
    return Prediction(
        expected=work / seconds,
        low=work / high_s,
        high=work / low_s,
        fit_probability=fits,
        step_s=seconds,
        terms=terms,
    )


def _total(trial: Trial) -> Prediction | NotScored:
    scenario = trial.scenario
    try:
        training = read_training(trial.measurement, samples_per_step(scenario))
    except Gap as gap:
        return NotScored(measurement=trial.measurement, reason=str(gap))
    step = estimate_step(scenario)
    factor = scenario.stack.time_factor
    micro = scenario.config.micro_batch_size * scenario.config.parallel.data_parallel
    terms = total_terms(training, step.step_s * factor, step.micro_batch.forward.total_s * factor, micro)
    seconds = sum(terms.values())
    spread = time_spread(scenario) * _wider(trial) + _OVERHEAD_FRAC
    return Prediction(
        expected=seconds,
        low=seconds / (1.0 + spread),
        high=seconds * (1.0 + spread),
        fit_probability=_fit(trial),
        terms=terms,
    )


def _first(unit: str) -> str:
    return unit.split("(")[0].casefold()


def time_spread(scenario: Scenario) -> float:
    """Share by which a step's time is off at 90 %: the stack's own, else the hardware family's."""
    if scenario.stack.time_spread_frac is not None:
        return scenario.stack.time_spread_frac
    return scenario.efficiency.speed(scenario.cluster.device, scenario.ledger.compute_dtype).spread_frac


def work_per_gpu(scenario: Scenario, *, in_tokens: bool) -> float:
    """Samples (or tokens, padding left out) of one optimizer step, a GPU's share."""
    share = samples_per_step(scenario) / scenario.config.parallel.world_size
    return share * scenario.lengths.mean if in_tokens else share


def samples_per_step(scenario: Scenario) -> int:
    """Samples of one optimizer step over all GPUs."""
    config = scenario.config
    return config.micro_batch_size * config.gradient_accumulation_steps * config.parallel.data_parallel


def _wider(trial: Trial) -> float:
    """Factor on the interval for what was assumed."""
    return widening(len(trial.widened))
