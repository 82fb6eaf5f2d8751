"""This version's scores of the shipped facts beside the last release's, from data/validation_trend.csv.

Columns: release, date, quantity (memory, step_time, total_time), source, median, p90, n; shares, not per cent.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from stoker.catalogue.tables import DATA_DIR, read_rows
from stoker.validation.summary import Summary

_TABLE = "validation_trend.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One source and quantity: median and 90th percentile of the error at the last release, and now."""

    release: str
    date: str
    quantity: str
    source: str
    median_before: float
    median: float
    p90_before: float
    p90: float


def trend(summary: Summary) -> list[Change]:
    """Each source and quantity that the last release scored too; none before the first release."""
    last = _last_release()
    changes = []
    for quantity, scores in summary.quantities.items():
        for source, score in scores.by_source.items():
            before = last.get((quantity, source))
            if before is not None:
                changes.append(
                    Change(
                        release=before["release"],
                        date=before["date"],
                        quantity=quantity,
                        source=source,
                        median_before=float(before["median"]),
                        median=score.median,
                        p90_before=float(before["p90"]),
                        p90=score.p90,
                    )
                )
    return changes


def _last_release() -> Mapping[tuple[str, str], dict[str, str]]:
    if not (DATA_DIR / _TABLE).exists():
        return {}
    rows = list(read_rows(_TABLE))
    newest = max((row["date"] for row in rows), default="")
    return {(row["quantity"], row["source"]): row for row in rows if row["date"] == newest}
