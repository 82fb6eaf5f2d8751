"""How each provider bills and warns, in seconds and USD, from data/providers.csv; blank where nothing was citable."""

import functools

from stoker.catalogue.tables import number, read_rows
from stoker.core.offer import Provider, ProviderTier

_TIERS: dict[str, ProviderTier] = {"hyperscaler": "hyperscaler", "marketplace": "marketplace"}


@functools.cache
def all_providers() -> dict[str, Provider]:
    """Every provider of the table by name."""
    return {
        row["name"]: Provider(
            name=row["name"],
            tier=_TIERS.get(row["tier"], "neocloud"),
            billing_granularity_s=number(row["billing_granularity_s"]),
            billing_minimum_s=number(row["billing_minimum_s"]),
            spot_notice_s=number(row["spot_notice_s"]),
            boot_s=number(row["boot_s"]),
            egress_usd_per_gb=number(row["egress_usd_per_gb"]),
            source=row["source"],
        )
        for row in read_rows("providers.csv")
    }


def provider(name: str) -> Provider:
    """What is known of `name`, in any case; a provider that the table lacks has no facts, and the prices age fast."""
    known = all_providers().get(name.lower())
    return known or Provider(
        name=name,
        billing_granularity_s=None,
        billing_minimum_s=None,
        spot_notice_s=None,
        boot_s=None,
        source="not in the table",
    )
