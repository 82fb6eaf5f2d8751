"""Every row of a table with its prediction: what `stoker validate` scores and prints."""

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from stoker.catalogue.left_out import efficiency_without
from stoker.core.efficiency import Efficiency
from stoker.core.measurement import Measurement
from stoker.validation.physics import impossible
from stoker.validation.predict import FIT_ONLY, Prediction, predict
from stoker.validation.table import Row
from stoker.validation.trial import NotScored, Trial, build_trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One row beside its prediction; `reason` where it has none. `trial`: for explaining.

    `is_bug`: the reason is a fault of ours, met while this row was read or estimated.
    """

    row: Row
    prediction: Prediction | None = None
    trial: Trial | None = None
    reason: str = ""
    is_bug: bool = False

    @property
    def measurement(self) -> Measurement | None:
        return self.row.measurement


def compare(rows: Iterable[Row], efficiency: Efficiency) -> list[Compared]:
    """Each row with its prediction or the reason why it has none."""
    return [_compare(row, efficiency) for row in rows]


def compare_left_out(rows: Iterable[Row], efficiency: Efficiency, *, described: bool) -> list[Compared]:
    """As `compare`, each source with the constants that were fitted without it.

    `described`: what its program does is known (which loss, which formats), only its rows taught nothing; else the
    program is unknown too, as that of a source nobody has read.
    """
    without: dict[str, Efficiency] = {}
    found = []
    for row in rows:
        source = row.measurement.source if row.measurement else ""
        if source not in without:
            without[source] = efficiency_without(efficiency, source)
        left = {"unfitted": (source,)} if described else {"unseen": (source,)}
        found.append(_compare(row, without[source], **left))
    return found


def _compare(
    row: Row, efficiency: Efficiency, *, unseen: Collection[str] = (), unfitted: Collection[str] = ()
) -> Compared:
    """The row beside its prediction. A fault met on the way must not cost the other rows their scores."""
    try:
        return _predicted(row, efficiency, unseen=unseen, unfitted=unfitted)
    except Exception as error:
        if os.environ.get("STOKER_TRACEBACK"):
            raise
        return Compared(row=row, reason=f"a bug in stoker: {type(error).__name__}: {error}"[:300], is_bug=True)


def _predicted(row: Row, efficiency: Efficiency, *, unseen: Collection[str], unfitted: Collection[str]) -> Compared:
    if row.measurement is None:
        return Compared(row=row, reason=row.problem)
    trial = build_trial(row.measurement, efficiency, unseen=unseen, unfitted=unfitted)
    if isinstance(trial, NotScored):
        return Compared(row=row, reason=trial.reason)
    impossibility = impossible(trial)
    if impossibility:
        return Compared(row=row, trial=trial, reason=impossibility)
    prediction = predict(trial)
    if isinstance(prediction, NotScored):
        return Compared(row=row, trial=trial, reason=prediction.reason)
    return Compared(row=row, prediction=prediction, trial=trial)


def error_of(compared: Compared) -> float | None:
    """|predicted - measured| / measured; throughputs on step time. None for rows judged by the fit alone."""
    measurement, prediction = compared.measurement, compared.prediction
    if measurement is None or prediction is None or measurement.metric in FIT_ONLY:
        return None
    return abs(ratio_of(measurement, prediction) - 1.0)


def ratio_of(measurement: Measurement, prediction: Prediction) -> float:
    """Predicted over measured, of bytes or seconds."""
    if measurement.metric.endswith("_per_gpu"):
        return measurement.value / prediction.expected
    return prediction.expected / measurement.value
