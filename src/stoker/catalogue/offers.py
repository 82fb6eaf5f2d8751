"""Price offers: whole instances in USD per hour, from data/offers.csv (each row with source, date and licence).

Rows that are no price are dropped, those that cannot be true are quarantined (`offer_checks`), and both are reported.
Nothing here touches the network. `tools/curate_offers.py` makes the bundled file.
"""

import csv
import dataclasses
import datetime
import difflib
import functools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from stoker.catalogue.exchange import exchange_rate
from stoker.catalogue.freshness import freshness
from stoker.catalogue.gpus import matching_devices
from stoker.catalogue.offer_checks import Located, check_offers
from stoker.catalogue.tables import DATA_DIR, number, whole
from stoker.core.errors import PlanningError
from stoker.core.i18n import _
from stoker.core.job import HardwareSpec
from stoker.core.offer import Offer, OfferIssue, OffersSnapshot, PriceKind
from stoker.core.units import GB, GIB

_KINDS: dict[str, PriceKind] = {
    "on_demand": "on_demand",
    "spot": "spot",
    "reserved": "reserved",
    "marketplace": "marketplace",
}
_REQUIRED = ("provider", "instance", "region", "gpu", "gpu_count", "price_kind", "usd_per_hour", "observed_at")


@functools.cache
def load_snapshot(path: Path | None = None) -> OffersSnapshot:
    """The offers of `path`, or the bundled ones. Raises PlanningError ST302 for a file that is no offers table."""
    path = path or DATA_DIR / "offers.csv"
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in _REQUIRED if name not in (reader.fieldnames or ())]
            rows = [] if missing else list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, str(error)) from error
    if missing:
        raise _unreadable(path, _("columns missing: {names}").format(names=", ".join(missing)))
    return snapshot_of(rows, name=path.name)


def _unreadable(path: Path, problem: str) -> PlanningError:
    return PlanningError(
        "ST302",
        _("this is no table of offers: {problem}").format(problem=problem),
        place=str(path),
        fix=_("columns: {names}").format(names=", ".join(_REQUIRED)),
    )


def snapshot_of(rows: Iterable[Mapping[str, str | None]], *, name: str = "offers") -> OffersSnapshot:
    """A checked snapshot from rows of text, as the CSV holds them; the header is line 1 of `name`."""
    located: dict[tuple[str, ...], Located] = {}
    issues: list[OfferIssue] = []
    for line, row in enumerate(rows, start=2):
        place = f"{name}:{line}"
        read = _read(row, place)
        if isinstance(read, OfferIssue):
            issues.append(read)
            continue
        key = (read.provider, read.instance, read.region, read.price_kind)
        before = located.get(key)
        if before is not None:
            older, newer = sorted((before, (place, read)), key=lambda item: item[1].observed_at)
            issues.append(OfferIssue(severity="dropped", kind="duplicate", place=older[0], offer=older[1]))
            located[key] = newer
        else:
            located[key] = (place, read)
    sane, found = check_offers(tuple(located.values()))
    dates = [offer.observed_at[:10] for offer in sane if offer.observed_at]
    krw = exchange_rate("KRW")
    return OffersSnapshot(
        offers=sane,
        date=max(dates, default=None),
        usd_krw=krw.units_per_usd,
        usd_krw_date=krw.date,
        issues=(*issues, *found),
    )


def _read(row: Mapping[str, str | None], place: str) -> Offer | OfferIssue:
    """The offer of one row, or why it is none: a price that is no positive number, a GPU that is not one product."""

    def dropped(kind: str, text: str) -> OfferIssue:
        return OfferIssue(severity="dropped", kind=kind, place=place, values={"text": text})

    cells = {key: (value or "").strip() for key, value in row.items() if isinstance(key, str)}
    try:
        price = float(cells["usd_per_hour"] or "nan")
    except ValueError:
        price = math.nan
    if not math.isfinite(price) or price <= 0:
        return dropped("not_a_price", repr(cells["usd_per_hour"]))
    devices = matching_devices(cells["gpu"])
    if len(devices) != 1:
        return dropped("unknown_gpu", repr(cells["gpu"]))
    try:
        return _offer(cells, devices[0].name, price)
    except (KeyError, ValueError) as error:
        return dropped("bad_row", str(error))


def _offer(cells: Mapping[str, str], gpu: str, price: float) -> Offer:
    count = int(cells["gpu_count"])
    if count < 1 or not cells["provider"] or not cells["instance"]:
        raise ValueError("gpu_count, provider or instance")
    observed = cells["observed_at"]
    if observed:
        datetime.date.fromisoformat(observed[:10])
    dram, disk = number(cells.get("dram_gib")), number(cells.get("disk_gb"))
    claimed = number(cells.get("claimed_gpu_gb"))
    return Offer(
        provider=cells["provider"].lower(),
        instance=cells["instance"],
        region=cells["region"],
        gpu=gpu,
        gpu_count=count,
        price_kind=_KINDS[cells["price_kind"]],
        usd_per_hour=price,
        observed_at=observed,
        source=cells.get("source", ""),
        licence=cells.get("licence", ""),
        vcpu=whole(cells.get("vcpu")),
        dram_bytes=None if dram is None else round(dram * GIB),
        disk_bytes=None if disk is None else round(disk * GB),
        claimed_memory_bytes=None if claimed is None else round(claimed * GB),
    )


def matching_offers(
    snapshot: OffersSnapshot, gpu: str, num_gpus: int, hardware: HardwareSpec, today: datetime.date | None = None
) -> tuple[Offer, ...]:
    """Sane offers that give `num_gpus` of exactly `gpu` over `hardware.nodes` machines, cheapest first.

    An instance with more GPUs than asked is offered (at its whole price) where a provider's region sells no exact one.
    Instances with spare GPUs come last: nobody pays for eight GPUs to get one because that price is fresher. Among
    the others, with `today`, stale prices come after those that are not (case 44). Ties fall by name.
    """
    nodes = hardware.nodes
    if num_gpus % nodes:
        return ()
    per_node = num_gpus // nodes
    fitting = [o for o in snapshot.offers if o.gpu == gpu and o.gpu_count >= per_node and _allowed(o, hardware)]
    smallest: dict[tuple[str, ...], int] = {}
    for offer in fitting:
        group = (offer.provider, offer.region, offer.price_kind)
        smallest[group] = min(offer.gpu_count, smallest.get(group, offer.gpu_count))
    chosen = [o for o in fitting if o.gpu_count == smallest[o.provider, o.region, o.price_kind]]
    return tuple(sorted((together(offer, nodes) for offer in chosen), key=functools.partial(_order, num_gpus, today)))


def check_listed(snapshot: OffersSnapshot, key: str, wanted: Iterable[str], place: str) -> None:
    """Raises PlanningError ST303, naming what there is, for a `provider` or `region` (`key`) without any offer."""
    listed = sorted({getattr(offer, key) for offer in snapshot.offers} - {""})
    known = {name.lower() for name in listed}
    for name in wanted:
        if name.lower() not in known:
            near = [other for other in listed if name.lower() in other.lower()]
            near = near or difflib.get_close_matches(name.lower(), listed, n=3)
            raise PlanningError(
                "ST303",
                _("no offer has {key} {value}").format(key=key, value=name),
                place=place,
                fix=_("one of: {names}").format(names=", ".join(near or listed)),
            )


def _allowed(offer: Offer, hardware: HardwareSpec) -> bool:
    if hardware.spot == "never" and offer.price_kind == "spot":
        return False
    if hardware.spot == "only" and offer.price_kind != "spot":
        return False
    return _named(offer.provider, hardware.providers) and _named(offer.region, hardware.regions)


def _named(name: str, wanted: str | list[str]) -> bool:
    return isinstance(wanted, str) or name.lower() in {item.lower() for item in wanted}


def together(offer: Offer, nodes: int) -> Offer:
    """`nodes` instances of `offer` as one: counts, price and sizes are then of all of them."""
    if nodes == 1:
        return offer
    return dataclasses.replace(
        offer,
        num_instances=offer.num_instances * nodes,
        gpu_count=offer.gpu_count * nodes,
        usd_per_hour=offer.usd_per_hour * nodes,
        vcpu=None if offer.vcpu is None else offer.vcpu * nodes,
        dram_bytes=None if offer.dram_bytes is None else offer.dram_bytes * nodes,
        disk_bytes=None if offer.disk_bytes is None else offer.disk_bytes * nodes,
    )


def _order(num_gpus: int, today: datetime.date | None, offer: Offer) -> tuple[object, ...]:
    stale = today is not None and freshness(offer, today) == "stale"
    spare = offer.gpu_count - num_gpus
    return (spare > 0, stale, offer.usd_per_hour, offer.provider, offer.instance, offer.region, offer.price_kind)
