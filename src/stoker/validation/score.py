"""Scores: errors of predictions, counted once a run and quantity, and averaged over sources rather than rows.

Error = |predicted - measured| / measured, throughputs as step times. Several readings of one quantity of one run
(repeats, a rate beside its step time) are one: their mean error. Suspect rows never get here; rows that their source
excluded are listed by role and left out of the rest (docs/math.md, "Scores").
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import mean, median
from typing import Final, Literal

from stoker.core.measurement import Measurement
from stoker.validation.predict import reading_of
from stoker.validation.run import Compared, ratio_of
from stoker.validation.trial import Trial

Quantity = Literal["memory", "step_time", "total_time"]
QUANTITIES: Final[tuple[Quantity, ...]] = ("memory", "step_time", "total_time")
EXCLUDED: Final = "excluded"
_VERSION: Final = re.compile(r"([\d.]+) NeMo Container|(?:py)?torch[ =]([\d.]+\d)|ts=([\d-]+)", re.IGNORECASE)
_ONE_GPU: Final = re.compile(r"\bgpu(\d+);")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One quantity of one run. `ratio`: predicted over measured bytes or seconds.

    `inside`: measured within the interval; `above`: beyond its high end.
    """

    quantity: Quantity
    reading: str
    source: str
    gpu: str
    method: str
    role: str
    error: float
    ratio: float
    inside: bool
    above: bool
    high_over_expected: float
    compared: Compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Quantiles of one group. `covered`: share within the interval, `above_high`: share beyond its high end."""

    n: int
    median: float
    p90: float
    ratio: float
    covered: float
    above_high: float
    high_over_expected: float
    sources: int = 1


def count_once(rows: Iterable[Compared]) -> list[Counted]:
    """The scored rows, one for each quantity of each run."""
    runs: dict[tuple[object, ...], list[Counted]] = defaultdict(list)
    for row in rows:
        counted = _counted(row)
        if counted is not None and row.trial is not None and row.measurement is not None:
            runs[(counted.quantity, counted.reading, *run_key(row.measurement, row.trial))].append(counted)
    return [_merged(readings) for readings in runs.values()]


def run_key(measurement: Measurement, trial: Trial) -> tuple[object, ...]:
    """What readings of one run share: the table, the library's version, and all that is predicted from."""
    scenario = trial.scenario
    one = _ONE_GPU.search(measurement.note)
    return (
        measurement.source,
        measurement.table,
        library_version(measurement),
        measurement.method,
        measurement.precision,
        scenario.cluster.device.name,
        scenario.cluster.num_gpus,
        id(scenario.ledger),
        scenario.config,
        scenario.lengths,
        one[1] if one else "",
    )


def library_version(measurement: Measurement) -> str:
    """The version of the stack that the note states, or ""."""
    found = _VERSION.search(measurement.note)
    return next((group for group in found.groups() if group), "") if found else ""


def quantity_of(metric: str) -> Quantity | None:
    """What a metric measures; None for what is not scored by its error."""
    if metric == "peak_mem_gb":
        return "memory"
    if metric in ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s_per_gpu"):
        return "step_time"
    return "total_time" if metric == "seconds_total" else None


def _counted(row: Compared) -> Counted | None:
    measurement, prediction, trial = row.measurement, row.prediction, row.trial
    if measurement is None or prediction is None or trial is None:
        return None
    quantity = quantity_of(measurement.metric)
    if quantity is None:
        return None
    ratio = ratio_of(measurement, prediction)
    rate = measurement.metric.endswith("_per_gpu")
    value = measurement.value
    return Counted(
        quantity=quantity,
        reading=reading_of(measurement.unit, trial.scenario.stack.memory_reading) if quantity == "memory" else "",
        source=measurement.source,
        gpu=trial.scenario.cluster.device.name,
        method=trial.method,
        role=measurement.role or "none",
        error=abs(ratio - 1.0),
        ratio=ratio,
        inside=prediction.low <= value <= prediction.high,
        above=value < prediction.low if rate else value > prediction.high,
        high_over_expected=prediction.expected / prediction.low if rate else prediction.high / prediction.expected,
        compared=row,
    )


def _merged(readings: Sequence[Counted]) -> Counted:
    """Several readings as one: mean error and ratio; inside and above as most of them."""
    if len(readings) == 1:
        return readings[0]
    first = readings[0]
    half = len(readings) / 2.0
    return Counted(
        quantity=first.quantity,
        reading=first.reading,
        source=first.source,
        gpu=first.gpu,
        method=first.method,
        role=first.role,
        error=mean(one.error for one in readings),
        ratio=exp(mean(log(one.ratio) for one in readings)),
        inside=sum(one.inside for one in readings) >= half,
        above=sum(one.above for one in readings) > half,
        high_over_expected=mean(one.high_over_expected for one in readings),
        compared=first.compared,
    )


def score(counted: Sequence[Counted]) -> Score | None:
    """Quantiles over `counted`, each run alike; None for none."""
    if not counted:
        return None
    errors = [one.error for one in counted]
    return Score(
        n=len(counted),
        median=quantile(errors, 0.5),
        p90=quantile(errors, 0.9),
        ratio=exp(median(log(one.ratio) for one in counted)),
        covered=mean(one.inside for one in counted),
        above_high=mean(one.above for one in counted),
        high_over_expected=median(one.high_over_expected for one in counted),
        sources=len({one.source for one in counted}),
    )


def score_of_sources(counted: Sequence[Counted]) -> Score | None:
    """The mean of every source's score: a source of many rows weighs no more than one of few."""
    scores = [found for found in scores_by(counted, lambda one: one.source).values()]
    if not scores:
        return None
    return Score(
        n=len(counted),
        median=mean(one.median for one in scores),
        p90=mean(one.p90 for one in scores),
        ratio=exp(mean(log(one.ratio) for one in scores)),
        covered=mean(one.covered for one in scores),
        above_high=mean(one.above_high for one in scores),
        high_over_expected=mean(one.high_over_expected for one in scores),
        sources=len(scores),
    )


def scores_by(counted: Sequence[Counted], key: Callable[[Counted], str]) -> dict[str, Score]:
    """Scores of the groups that `key` names, the largest group first."""
    groups: dict[str, list[Counted]] = defaultdict(list)
    for one in counted:
        groups[key(one)].append(one)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return {name: found for name, members in ordered if (found := score(members)) is not None}


def quantile(values: Sequence[float], probability: float) -> float:
    """The quantile of `values`, linear between the two nearest."""
    ordered = sorted(values)
    where = probability * (len(ordered) - 1)
    below = int(where)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (where - below) * (ordered[above] - ordered[below])
