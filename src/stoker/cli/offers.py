"""`stoker offers`: what GPUs cost where, each price with its date, age and source. No network: the bundled snapshot."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stoker.cli.console import notice, print_answer, print_json
from stoker.cli.options import JsonOption, LangOption
from stoker.core.i18n import _

if TYPE_CHECKING:
    import datetime

    from stoker.core.offer import Offer, OfferIssue, OffersSnapshot


def offers(
    gpu: Annotated[str, typer.Option(help=_("GPU name, such as L4 or H100"), show_default=False)] = "",
    count: Annotated[int, typer.Option(min=0, help=_("GPUs of the instance; 0: any"))] = 0,
    kind: Annotated[str, typer.Option(help=_("on_demand, spot, reserved or marketplace"), show_default=False)] = "",
    provider: Annotated[str, typer.Option(help=_("cloud, such as aws"), show_default=False)] = "",
    region: Annotated[str, typer.Option(help=_("region, such as koreacentral"), show_default=False)] = "",
    max_usd_per_hour: Annotated[
        float | None, typer.Option(min=0.0, help=_("dearest instance to show, USD per hour"), show_default=False)
    ] = None,
    as_json: JsonOption = False,
    lang: LangOption = "",
) -> None:
    import datetime

    from stoker.catalogue.offers import load_snapshot

    snapshot = load_snapshot()
    _check_names(snapshot, kind=kind, provider=provider, region=region)
    products = _products(gpu)

    def wanted(offer: "Offer") -> bool:
        return (
            (products is None or offer.gpu in products)
            and (not count or offer.gpu_count == count)
            and (not kind or offer.price_kind == kind.lower())
            and (not provider or offer.provider == provider.lower())
            and (not region or offer.region.lower() == region.lower())
            and (max_usd_per_hour is None or offer.usd_per_hour <= max_usd_per_hour)
        )

    shown = sorted(
        filter(wanted, snapshot.offers),
        key=lambda o: (o.usd_per_hour, o.provider, o.instance, o.region, o.price_kind),
    )
    set_aside = [issue for issue in snapshot.issues if issue.offer is None or wanted(issue.offer)]
    today = datetime.datetime.now(datetime.UTC).date()
    if as_json:
        print_json(_document(snapshot, shown, set_aside, today))
        return
    print_answer(_table(shown, today) if shown else _("no offer matches"))
    _talk(snapshot, shown, set_aside, today)


def _products(gpu: str) -> frozenset[str] | None:
    """Names of the products that `gpu` can mean; None for all. A list of prices names each product, so H100 is fine."""
    from stoker.catalogue.gpus import find_device, matching_devices

    if not gpu:
        return None
    return frozenset(device.name for device in matching_devices(gpu) or (find_device(gpu, place="--gpu"),))


def _check_names(snapshot: "OffersSnapshot", *, kind: str, provider: str, region: str) -> None:
    from stoker.catalogue.offers import check_listed

    for key, value in (("price_kind", kind), ("provider", provider), ("region", region)):
        check_listed(snapshot, key, [value] if value else [], "--" + key.removeprefix("price_"))


def _table(shown: Sequence["Offer"], today: "datetime.date") -> str:
    from stoker.catalogue.freshness import age_days, freshness
    from stoker.core.human import format_money
    from stoker.report.tables import Column, render_table

    states = {"fresh": _("fresh"), "aging": _("aging"), "stale": _("stale")}
    columns = [
        Column(_("GPU")),
        Column(_("count"), "right"),
        Column(_("provider")),
        Column(_("instance")),
        Column(_("region")),
        Column(_("kind")),
        Column(_("USD/h"), "right"),
        Column(_("USD/GPU-h"), "right"),
        Column(_("as of")),
        Column(_("age"), "right"),
        Column(_("state")),
    ]
    rows = []
    for offer in shown:
        age = age_days(offer, today)
        rows.append(
            [
                offer.gpu,
                str(offer.gpu_count),
                offer.provider,
                offer.label,
                offer.region,
                offer.price_kind,
                format_money(offer.usd_per_hour),
                format_money(offer.usd_per_gpu_hour),
                offer.observed_at[:10],
                "" if age is None else _("{days} d").format(days=age),
                states[freshness(offer, today)],
            ]
        )
    return render_table(columns, rows)


def _talk(
    snapshot: "OffersSnapshot", shown: Sequence["Offer"], issues: Sequence["OfferIssue"], today: "datetime.date"
) -> None:
    from stoker.catalogue.offer_checks import describe_issue

    notice(
        _("{count} offers; snapshot of {date}, {age} days old; 1 USD = {krw:,.2f} KRW on {krw_date}").format(
            count=len(shown),
            date=snapshot.date or "?",
            age=_snapshot_age(snapshot, today),
            krw=snapshot.usd_krw,
            krw_date=snapshot.usd_krw_date,
        )
    )
    verdicts = {"dropped": _("dropped"), "quarantined": _("not ranked"), "flagged": _("remark")}
    for issue in issues:
        offer = issue.offer
        name = f"{offer.provider} {offer.label} {offer.price_kind}" if offer else issue.place
        notice(f"  {verdicts[issue.severity]}: {name}: {describe_issue(issue)}")


def _snapshot_age(snapshot: "OffersSnapshot", today: "datetime.date") -> int | None:
    import datetime

    return max(0, (today - datetime.date.fromisoformat(snapshot.date)).days) if snapshot.date else None


def _document(
    snapshot: "OffersSnapshot", shown: Sequence["Offer"], issues: Sequence["OfferIssue"], today: "datetime.date"
) -> dict[str, Any]:
    from stoker.catalogue.offer_checks import describe_issue

    return {
        "offers": [_entry(offer, today) for offer in shown],
        "issues": [
            {
                "severity": issue.severity,
                "kind": issue.kind,
                "place": issue.place,
                "reason": describe_issue(issue),
                "offer": _entry(issue.offer, today) if issue.offer else None,
            }
            for issue in issues
        ],
        "offers_snapshot": {"date": snapshot.date, "age_days": _snapshot_age(snapshot, today)},
        "usd_krw": snapshot.usd_krw,
        "usd_krw_date": snapshot.usd_krw_date,
    }


def _entry(offer: "Offer", today: "datetime.date") -> dict[str, Any]:
    from stoker.catalogue.freshness import age_days, freshness
    from stoker.core.codec import encode

    extra = {"age_days": age_days(offer, today), "freshness": freshness(offer, today)}
    return {**encode(offer), "usd_per_gpu_hour": offer.usd_per_gpu_hour, **extra}
