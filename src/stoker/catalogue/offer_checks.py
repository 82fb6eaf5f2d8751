"""Sanity of prices, in USD per GPU-hour: which offers may compete for "cheapest", and what is wrong with the others.

A class is one GPU, one price kind and one tier of provider (hyperscaler, neocloud, marketplace), because list prices of
one H100 run from 1.74 to 12.29 USD between tiers. Its median weighs providers equally, so that a provider with many
regions, or one with a broken feed, does not decide. A class of fewer than three providers is compared with all tiers
and twice as far. Kept out: a price outside 0.4 to 3 times its class (per-GPU prices taken for an instance, a host
without its GPUs, a bid floor), and a spot price not below the same instance's on-demand price.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from stoker.catalogue.gpus import find_device
from stoker.catalogue.provider_facts import provider
from stoker.core.i18n import _
from stoker.core.offer import Offer, OfferIssue
from stoker.core.units import GB

LOWEST, HIGHEST = 0.4, 3.0
_MIN_PEERS = 3
_WIDER = 2.0
_MEMORY_TOLERANCE = 0.1  # marketing sizes of one product differ by 7 % (B200: 180 and 192 GB)

Located = tuple[str, Offer]


def check_offers(located: Sequence[Located]) -> tuple[tuple[Offer, ...], tuple[OfferIssue, ...]]:
    """The offers that may be ranked, and what was found. `located`: (file:line, offer) pairs with finite prices."""
    quarantined = [*_outside_class(located), *_spot_not_below(located)]
    out = {id(issue.offer) for issue in quarantined}
    sane = tuple(offer for _place, offer in located if id(offer) not in out)
    return sane, (*quarantined, *_memory_conflicts(located))


def _outside_class(located: Sequence[Located]) -> Iterable[OfferIssue]:
    tiers = {name: provider(name).tier for name in {offer.provider for _place, offer in located}}
    narrow = _medians(located, lambda o: (o.gpu, o.price_kind, tiers[o.provider]))
    wide = _medians(located, lambda o: (o.gpu, o.price_kind == "spot"), at_least_rows=True)
    for place, offer in located:
        median = narrow.get((offer.gpu, offer.price_kind, tiers[offer.provider]))
        factor = 1.0
        if median is None:
            median, factor = wide.get((offer.gpu, offer.price_kind == "spot")), _WIDER
        if median is None:
            continue
        ratio = offer.usd_per_gpu_hour / median
        if not LOWEST / factor <= ratio <= HIGHEST * factor:
            yield OfferIssue(
                severity="quarantined",
                kind=_outlier_kind(offer, median),
                place=place,
                offer=offer,
                values={"usd_per_gpu_hour": offer.usd_per_gpu_hour, "median_usd_per_gpu_hour": median},
            )


def _outlier_kind(offer: Offer, median: float) -> str:
    """The likeliest reason: a GPU's price given for the instance, or the instance's price given for each GPU."""
    within = (LOWEST * median, HIGHEST * median)
    if offer.gpu_count > 1 and within[0] <= offer.usd_per_hour <= within[1]:
        return "price_of_one_gpu"
    if offer.gpu_count > 1 and within[0] <= offer.usd_per_gpu_hour / offer.gpu_count <= within[1]:
        return "price_times_count"
    return "outside_class"


def _medians(
    located: Sequence[Located], key: Callable[[Offer], tuple[object, ...]], *, at_least_rows: bool = False
) -> dict[tuple[object, ...], float]:
    """Median of the providers' medians, for groups of three providers or more (or, if allowed, three rows)."""
    groups: dict[tuple[object, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _place, offer in located:
        groups[key(offer)][offer.provider].append(offer.usd_per_gpu_hour)
    result: dict[tuple[object, ...], float] = {}
    for group, providers in groups.items():
        rows = [price for prices in providers.values() for price in prices]
        if len(providers) >= _MIN_PEERS:
            result[group] = _median([_median(prices) for prices in providers.values()])
        elif at_least_rows and len(rows) >= _MIN_PEERS:
            result[group] = _median(rows)
    return result


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)  # `statistics` costs 4 ms to import, a fifth of the budget of a price look-up
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _spot_not_below(located: Sequence[Located]) -> Iterable[OfferIssue]:
    listed = {(o.provider, o.instance, o.region): o.usd_per_hour for _p, o in located if o.price_kind == "on_demand"}
    for place, offer in located:
        price = listed.get((offer.provider, offer.instance, offer.region))
        if offer.price_kind == "spot" and price is not None and offer.usd_per_hour >= price:
            yield OfferIssue(
                severity="quarantined",
                kind="spot_not_below",
                place=place,
                offer=offer,
                values={"usd_per_hour": offer.usd_per_hour, "on_demand_usd_per_hour": price},
            )


def _memory_conflicts(located: Sequence[Located]) -> Iterable[OfferIssue]:
    for place, offer in located:
        sold = find_device(offer.gpu).sold_bytes
        claimed = offer.claimed_memory_bytes
        if claimed is not None and abs(claimed - sold) > _MEMORY_TOLERANCE * sold:
            yield OfferIssue(
                severity="flagged",
                kind="memory_conflict",
                place=place,
                offer=offer,
                values={"claimed_gb": claimed / GB, "ours_gb": sold / GB, "gpu_count": offer.gpu_count},
            )


def describe_issue(issue: OfferIssue) -> str:
    """One sentence on what a check found, in the language in force."""
    values = issue.values
    texts = {
        "not_a_price": _("{text} is not a price"),
        "bad_row": _("the row cannot be read: {text}"),
        "unknown_gpu": _("the GPU {text} is not one product of the table"),
        "duplicate": _("the same instance, region and price kind stands twice; the newer one counts"),
        "outside_class": _("{usd_per_gpu_hour:.2f} USD per GPU-hour, the median is {median_usd_per_gpu_hour:.2f}"),
        "price_of_one_gpu": _(
            "looks like one GPU's price given for the instance: {usd_per_gpu_hour:.2f} USD per GPU-hour, "
            "the median is {median_usd_per_gpu_hour:.2f}"
        ),
        "price_times_count": _(
            "looks like the instance's price given for each GPU: {usd_per_gpu_hour:.2f} USD per GPU-hour, "
            "the median is {median_usd_per_gpu_hour:.2f}"
        ),
        "spot_not_below": _("spot {usd_per_hour:.2f} USD is not below on-demand {on_demand_usd_per_hour:.2f}"),
        "memory_conflict": _(
            "the provider's field says {claimed_gb:.0f} GB a GPU, our table {ours_gb:.0f}; the table counts"
        ),
    }
    return texts[issue.kind].format(**values)
