"""Estimates: intervals with a source. A sum is only as well known as its weakest part."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Source(StrEnum):
    """Where a number comes from, best first."""

    MEASURED = "measured"
    CALIBRATED = "calibrated"
    TRACED = "traced"
    ANALYTIC = "analytic"
    VENDOR_SPEC = "vendor_spec"
    ASSUMED = "assumed"


_STRENGTH = {source: rank for rank, source in enumerate(Source)}


def weakest(*sources: Source) -> Source:
    """The source of a sum: that of its least certain term."""
    return max(sources, key=_STRENGTH.__getitem__)


def probability_below(limit: float, low: float, expected: float, high: float) -> float:
    """P(x <= limit) for a quantity whose 5 %, 50 % and 95 % points are low, expected, high (log-normal halves)."""
    if expected <= 0:
        return 1.0
    edge = high if limit >= expected else low
    spread = abs(math.log(max(edge, 1e-30) / expected)) / 1.6449  # 1.6449: the 95 % point of a standard normal
    if spread == 0:
        return 1.0 if limit >= expected else 0.0
    return 0.5 * (1.0 + math.erf(math.log(max(limit, 1e-30) / expected) / spread / math.sqrt(2.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Memory of the fullest rank. `terms` sum to `expected_bytes`: reserved memory plus context.

    `phases`: expected bytes at load, forward, backward, optimizer, evaluation, save (those that are known).
    `tiers`: bytes in hbm, dram, nvme. `visible_bytes`: what the device shows. `correction_factor`: what own runs
    multiplied the analytic value by (1: nothing). `correction_parts`: factors on single parts instead, from another
    model's run of the same stack.
    """

    low_bytes: int
    expected_bytes: int
    high_bytes: int
    peak_allocated_bytes: int
    visible_bytes: int
    terms: Mapping[str, int]
    phases: Mapping[str, int] = field(default_factory=dict)
    tiers: Mapping[str, int] = field(default_factory=dict)
    source: Source = Source.ANALYTIC
    correction_factor: float = 1.0
    correction_parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def fit_probability(self) -> float:
        return probability_below(self.visible_bytes, self.low_bytes, self.expected_bytes, self.high_bytes)

    @property
    def fits(self) -> bool:
        return self.fit_probability >= 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeEstimate:
    """One optimizer step and the whole run, in seconds. `step_terms` and `total_terms` sum to their totals.

    `correction_factor`: what own runs multiplied the analytic step by (1: nothing). `model_flops`: of one step on one
    rank, recomputation left out. `restart_s`: what one interruption costs: starting again, and half a save interval.
    """

    step_s: float
    step_terms: Mapping[str, float]
    total_s: float
    total_terms: Mapping[str, float]
    low_s: float
    high_s: float
    num_steps: int
    source: Source = Source.ANALYTIC
    correction_factor: float = 1.0
    model_flops: float = 0.0
    restart_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """What a run costs at one offer, in USD; `lines` sum to `total_usd`. `as_of`: ISO date of the price.

    `is_stale`: older than its kind of price can be trusted; it is shown, and competes with `high_usd`.
    """

    total_usd: float
    low_usd: float
    high_usd: float
    lines: Mapping[str, float]
    usd_per_hour: float
    provider: str
    instance: str
    region: str
    price_kind: str
    as_of: str
    source: str
    is_stale: bool = False
