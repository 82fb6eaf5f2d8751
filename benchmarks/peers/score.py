"""Scores of one predictor: |predicted - measured| / measured, over rows pooled and over sources averaged."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

UNDER = 0.10  # a prediction lower than the measured value by more than this share counts as under


def score(cases: Sequence[Mapping[str, Any]], predicted: Sequence[float | None]) -> dict[str, Any]:
    """Scores of the cases that have a prediction; fractions. None stands for not offered."""
    pairs = [(case, value) for case, value in zip(cases, predicted, strict=True) if value is not None]
    if not pairs:
        return {"offered": 0, "of": len(cases)}
    by_source: dict[str, list[float]] = {}
    for case, value in pairs:
        by_source.setdefault(case["source"], []).append(value / case["measured_bytes"] - 1.0)
    signed = [error for errors in by_source.values() for error in errors]
    sources = {source: {"rows": len(errors), **_spread(errors)} for source, errors in sorted(by_source.items())}
    return {
        "offered": len(pairs),
        "of": len(cases),
        **_spread(signed),
        "mean_of_sources": {
            name: round(fmean(entry[name] for entry in sources.values()), 4)
            for name in ("median", "p90", "under_share")
        },
        "sources": sources,
    }


def _spread(signed: Sequence[float]) -> dict[str, Any]:
    sizes = sorted(abs(error) for error in signed)
    under = sum(error < -UNDER for error in signed)
    return {
        "median": round(median(sizes), 4),
        "p90": round(quantile(sizes, 0.9), 4),
        "under": under,
        "under_share": round(under / len(sizes), 4),
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of sorted values, linear between neighbours."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def on_common(
    cases: Sequence[Mapping[str, Any]], one: Sequence[float | None], other: Sequence[float | None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The scores of two predictors on the cases that both could do."""
    both = [i for i in range(len(cases)) if one[i] is not None and other[i] is not None]
    chosen = [cases[i] for i in both]
    return score(chosen, [one[i] for i in both]), score(chosen, [other[i] for i in both])
