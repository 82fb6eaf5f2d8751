"""An offer: one price of one instance at one provider, with its date and source."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PriceKind = Literal["on_demand", "spot", "reserved", "marketplace"]
ProviderTier = Literal["hyperscaler", "neocloud", "marketplace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """`usd_per_hour` is the whole instance's price, never one GPU's. `observed_at`: ISO date (UTC); empty: undated.

    `num_instances` > 1: so many equal instances together; count, price and sizes are then of all of them.
    `claimed_memory_bytes`: GPU memory by the provider's own field, kept only to report conflicts with our table.
    """

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
    num_instances: int = 1
    claimed_memory_bytes: int | None = None

    @property
    def label(self) -> str:
        """Instance name, such as `2 x p5.48xlarge`."""
        return self.instance if self.num_instances == 1 else f"{self.num_instances} x {self.instance}"

    @property
    def usd_per_gpu_hour(self) -> float:
        return self.usd_per_hour / self.gpu_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Billing facts of a provider; None where nothing citable is known. `tier` decides how fast prices go stale."""

    name: str
    billing_granularity_s: float | None
    billing_minimum_s: float | None
    spot_notice_s: float | None
    boot_s: float | None
    source: str
    tier: ProviderTier = "neocloud"
    egress_usd_per_gb: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferIssue:
    """What a sanity check said of one row. `place`: file and line. `values`: the numbers and names behind it.

    `dropped`: not an offer at all; `quarantined`: kept for show, never ranked; `flagged`: usable, with a remark.
    """

    severity: Literal["dropped", "quarantined", "flagged"]
    kind: str
    place: str
    offer: Offer | None = None
    values: Mapping[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffersSnapshot:
    """A dated set of sane offers. `date`: ISO date of the newest row; None means undated, that is: stale.

    `issues`: rows that were dropped, quarantined or flagged, and why.
    """

    offers: tuple[Offer, ...]
    date: str | None
    usd_krw: float
    usd_krw_date: str
    issues: tuple[OfferIssue, ...] = ()
