"""An offer: one price of one instance at one provider, with its date and source."""

from dataclasses import dataclass
from typing import Literal

PriceKind = Literal["on_demand", "spot", "reserved", "marketplace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """`usd_per_hour` is the whole instance's price, never one GPU's. `observed_at`: ISO date (UTC)."""

    provider: str
    instance: str
    region: str
    gpu: str
    gpu_count: int
    price_kind: PriceKind
    usd_per_hour: float
    observed_at: str
    source: str
    licence: str = ""
    vcpu: int | None = None
    dram_bytes: int | None = None
    disk_bytes: int | None = None

    @property
    def usd_per_gpu_hour(self) -> float:
        return self.usd_per_hour / self.gpu_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Billing facts of a provider; None where nothing citable is known."""

    name: str
    billing_granularity_s: float | None
    billing_minimum_s: float | None
    spot_notice_s: float | None
    boot_s: float | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffersSnapshot:
    """A dated set of offers. `date`: ISO date of the newest row; None means undated, that is: stale."""

    offers: tuple[Offer, ...]
    date: str | None
    usd_krw: float
    usd_krw_date: str
