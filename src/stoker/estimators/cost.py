"""What a run costs at one offer, in USD: billed hours x the instance price, plus tax, as an interval with reasons.

total = ceil(run / granularity) x granularity, at least the provider's minimum, x price / 3600, x (1 + VAT). The run's
seconds already hold setup (boot, image, download, load). The interval joins that of the time with that of the price,
which widens with the price's age (`catalogue.freshness`). Interruptions of spot are not priced here.
"""

import datetime
import math

from stoker.catalogue.freshness import age_days, freshness, price_spread_frac
from stoker.core.estimate import CostEstimate
from stoker.core.i18n import _
from stoker.core.job import GoalSpec
from stoker.core.offer import Offer, Provider
from stoker.core.units import HOUR_S

_ASSUMED_GRANULARITY_S = 1.0
_ULP = 1e-9  # 3600.0000000001 s of floating point are one hour, not one and a second


def billed_s(run_s: float, provider: Provider) -> float:
    """Seconds that the provider charges for a run of `run_s` seconds."""
    unit = provider.billing_granularity_s or _ASSUMED_GRANULARITY_S
    return max(math.ceil(run_s / unit - _ULP) * unit, provider.billing_minimum_s or 0.0)


def estimate_cost(
    total_s: float,
    low_s: float,
    high_s: float,
    offer: Offer,
    provider: Provider,
    goal: GoalSpec,
    *,
    today: datetime.date,
) -> CostEstimate:
    """Cost of a run of `total_s` seconds (between `low_s` and `high_s`) at `offer`, as seen on `today`.

    `lines`: `compute` (the run itself), `billing_rounding` (what the billing unit and minimum add) and `vat`, the last
    two only where they are not zero; they sum to `total_usd`.
    """
    usd_per_s = offer.usd_per_hour / HOUR_S
    compute = total_s * usd_per_s
    net = billed_s(total_s, provider) * usd_per_s
    lines = {"compute": compute, "billing_rounding": net - compute, "vat": net * goal.vat_frac}
    lines = {name: usd for name, usd in lines.items() if name == "compute" or usd > 1e-12}
    spread, gross = price_spread_frac(offer, today), usd_per_s * (1.0 + goal.vat_frac)
    total = math.fsum(lines.values())
    return CostEstimate(
        total_usd=total,
        low_usd=min(total, billed_s(low_s, provider) * gross * (1.0 - spread)),
        high_usd=max(total, billed_s(high_s, provider) * gross * (1.0 + spread)),
        lines=lines,
        usd_per_hour=offer.usd_per_hour,
        provider=offer.provider,
        instance=offer.label,
        region=offer.region,
        price_kind=offer.price_kind,
        as_of=offer.observed_at[:10],
        source=_source(offer, provider, today),
    )


def _source(offer: Offer, provider: Provider, today: datetime.date) -> str:
    age = age_days(offer, today)
    parts = [offer.source]
    if age is None:
        parts.append(_("price without a date: taken as stale"))
    else:
        state = {"fresh": _("fresh"), "aging": _("aging"), "stale": _("stale")}[freshness(offer, today)]
        parts.append(
            _("price seen {date}, {days} days ago: {state}").format(date=offer.observed_at[:10], days=age, state=state)
        )
    if provider.billing_granularity_s is None:
        parts.append(_("billing unit unknown: per second assumed"))
    return "; ".join(part for part in parts if part)
