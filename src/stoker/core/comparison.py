"""Predicted beside measured, and several runs side by side: what `report` draws. The caller computed it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from stoker.core.estimate import CostEstimate
from stoker.core.plan import Candidate, Plan
from stoker.core.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One quantity, predicted (with its interval) and measured, in `unit` (bytes, s, usd, samples_per_s)."""

    name: str
    unit: str
    predicted: float | None
    low: float | None
    high: float | None
    measured: float | None
    source: str = ""

    @property
    def error_frac(self) -> float | None:
        """(predicted - measured) / measured, None where either is missing."""
        if self.predicted is None or self.measured is None or self.measured == 0:
            return None
        return (self.predicted - self.measured) / self.measured


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run as a row: its record, its comparisons, its metrics, and what it would cost elsewhere.

    `plan` and `candidate`: what the record's header carries and which of it ran; None where it cannot be read.
    """

    name: str
    record: RunRecord
    comparisons: tuple[Comparison, ...]
    metrics: Mapping[str, float]
    elsewhere: tuple["Elsewhere", ...] = ()
    notes: tuple[str, ...] = field(default=())
    plan: Plan | None = None
    candidate: Candidate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The same run on another cluster: predicted time, and the cheapest offer if any is known."""

    cluster: str
    total_s: float
    fits: bool
    cost: CostEstimate | None
