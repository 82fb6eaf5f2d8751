"""Everything that `stoker validate` says about a table: scores by quantity and group, decisions, calibration, rank."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stoker.validation.calibrated import calibrated
from stoker.validation.decisions import Decided, fit_decisions, rank_pairs
from stoker.validation.run import Compared
from stoker.validation.score import (
    EXCLUDED,
    QUANTITIES,
    Counted,
    Quantity,
    Score,
    count_once,
    score,
    score_of_sources,
    scores_by,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantityScores:
    """One quantity: `overall` averages the sources, `pooled` all its runs; then by group."""

    overall: Score
    pooled: Score
    by_source: Mapping[str, Score]
    by_gpu: Mapping[str, Score]
    by_method: Mapping[str, Score]
    by_role: Mapping[str, Score]
    calibrated: Score | None
    calibrated_pooled: Score | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`scored` and `not_scored` count rows; a run's readings count once in the scores."""

    num_rows: int
    num_scored: int
    not_scored: Mapping[str, int]
    quantities: Mapping[Quantity, QuantityScores]
    out_of_memory: Decided
    ran: Decided
    rank: Decided


def summarise(rows: Sequence[Compared]) -> Summary:
    """The scores of `rows`."""
    counted = count_once(rows)
    out_of_memory, ran = fit_decisions(rows)
    quantities = {name: found for name in QUANTITIES if (found := _quantity(counted, name)) is not None}
    return Summary(
        num_rows=len(rows),
        num_scored=sum(row.prediction is not None for row in rows),
        not_scored=dict(Counter(row.reason for row in rows if row.reason).most_common()),
        quantities=quantities,
        out_of_memory=out_of_memory,
        ran=ran,
        rank=rank_pairs(_counting(counted)),
    )


def _counting(counted: Sequence[Counted]) -> list[Counted]:
    return [one for one in counted if one.role != EXCLUDED]


def _quantity(counted: Sequence[Counted], quantity: Quantity) -> QuantityScores | None:
    every = [one for one in counted if one.quantity == quantity]
    members = _counting(every)
    overall, pooled = score_of_sources(members), score(members)
    if overall is None or pooled is None:
        return None
    after = calibrated(members, quantity)
    return QuantityScores(
        overall=overall,
        pooled=pooled,
        by_source=scores_by(members, lambda one: one.source),
        by_gpu=scores_by(members, lambda one: one.gpu),
        by_method=scores_by(members, lambda one: one.method),
        by_role=scores_by(every, lambda one: one.role),
        calibrated=score_of_sources(after),
        calibrated_pooled=score(after),
    )


def rows_json(rows: Sequence[Compared]) -> list[dict[str, Any]]:
    """Every row: its own columns, then what was predicted or why nothing was."""
    return [_row_json(row) for row in rows]


def _row_json(row: Compared) -> dict[str, Any]:
    columns = dict(row.row.columns)
    prediction, measurement = row.prediction, row.measurement
    return {
        **columns,
        "metric": columns.get("metric", ""),
        "measured": measurement.value if measurement else None,
        "predicted": prediction.expected if prediction else None,
        "low": prediction.low if prediction else None,
        "high": prediction.high if prediction else None,
        "fit_probability": prediction.fit_probability if prediction else None,
        "unit": columns.get("unit", ""),
        "quality": columns.get("quality", ""),
        "not_scored": row.reason or None,
    }


def summary_json(summary: Summary) -> dict[str, Any]:
    """The summary as plain values."""
    return {
        "num_rows": summary.num_rows,
        "num_scored": summary.num_scored,
        "not_scored": dict(summary.not_scored),
        **{name: asdict(scores) for name, scores in summary.quantities.items()},
        "fit": {"out_of_memory": _decided_json(summary.out_of_memory), "ran": _decided_json(summary.ran)},
        "rank": _decided_json(summary.rank),
    }


def _decided_json(decided: Decided) -> dict[str, Any]:
    return {"n": decided.n, "right": decided.right, "share": decided.share, "wrong": list(decided.wrong)}
