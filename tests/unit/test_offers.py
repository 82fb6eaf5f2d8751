"""Offers: the bundled snapshot prices what it must, age decides trust, and matching is exact and deterministic."""

import datetime
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from offer_rows import row

from stoker.catalogue.exchange import exchange_rate
from stoker.catalogue.freshness import age_days, freshness, price_spread_frac
from stoker.catalogue.gpus import find_device
from stoker.catalogue.offers import load_snapshot, matching_offers, snapshot_of
from stoker.catalogue.provider_facts import all_providers, provider
from stoker.core.errors import PlanningError
from stoker.core.job import HardwareSpec
from stoker.core.offer import Offer

TODAY = datetime.date(2026, 11, 30)
ROOT = Path(__file__).resolve().parents[2]


# --- what is bundled


def test_the_snapshot_is_broad_and_every_row_is_sourced() -> None:
    snapshot = load_snapshot()
    offers = snapshot.offers
    assert len(offers) >= 150
    assert len({o.provider for o in offers}) >= 8
    assert len({o.gpu for o in offers}) >= 20
    assert {o.price_kind for o in offers} >= {"on_demand", "spot", "marketplace"}
    assert {1, 2, 4, 8} <= {o.gpu_count for o in offers}
    regions = {o.region for o in offers}
    assert {"us-east-1", "europe-west4", "koreacentral", "asia-northeast3", "ap-northeast-2"} <= regions
    for offer in offers:
        assert offer.source and offer.licence
        assert datetime.date(2026, 1, 1) <= datetime.date.fromisoformat(offer.observed_at) <= TODAY
        assert find_device(offer.gpu).name == offer.gpu
    assert snapshot.date == max(o.observed_at for o in offers)


def test_the_demo_gpus_are_priced_on_several_clouds() -> None:
    clouds = defaultdict(set)
    for offer in load_snapshot().offers:
        clouds[offer.gpu].add(offer.provider)
    for gpu in ("L4", "A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM-141GB", "L40S", "B200-SXM-180GB"):
        assert len(clouds[gpu]) >= 4, gpu
    assert len(clouds["RTX4090"]) >= 2
    assert clouds["A10G"] == {"aws"}  # only AWS rents it
    assert clouds["T4"] >= {"aws", "azure"}


def test_nothing_bundled_is_dropped_and_little_is_quarantined() -> None:
    snapshot = load_snapshot()
    assert not [issue for issue in snapshot.issues if issue.severity == "dropped"]
    aside = {(i.offer.provider, i.offer.gpu) for i in snapshot.issues if i.offer}
    assert aside == {("runpod", "V100-PCIe-16GB"), ("runpod", "V100-SXM2-16GB"), ("vastai", "A10")}


@pytest.mark.parametrize(
    ("name", "region", "usd", "month"),
    [
        ("vastai", "any", 334, "2026-08"),
        ("runpod", "any", 670, "2026-10"),
        ("lambda", "any", 766, "2026-09"),
        ("nebius", "any", 864, "2026-10"),
        ("coreweave", "any", 1182, "2026-09"),
        ("aws", "us-east-1", 1321, "2026-07"),
        ("gcp", "us-central1", 2124, "2026-07"),
        ("azure", "eastus", 2360, "2026-09"),
    ],
)
def test_golden_eight_h100_for_a_day(name: str, region: str, usd: int, month: str) -> None:
    """8 x rate x 24 h by the snapshot's own dated rates; the figures are the price survey's, to the dollar."""
    hardware = HardwareSpec(providers=[name], regions="any" if region == "any" else [region], spot="never")
    cheapest = matching_offers(load_snapshot(), "H100-SXM5-80GB", 8, hardware)[0]
    assert round(8 * cheapest.usd_per_gpu_hour * 24) == usd
    assert cheapest.observed_at.startswith(month)


def test_seoul_is_dearer_than_virginia() -> None:
    """p4d and p5 in Seoul cost 1.38 times us-east-1 (price survey)."""
    by_region = {(o.instance, o.region): o.usd_per_hour for o in load_snapshot().offers if o.provider == "aws"}
    for instance in ("p5.48xlarge", "p4d.24xlarge"):
        ratio = by_region[instance, "ap-northeast-2"] / by_region[instance, "us-east-1"]
        assert ratio == pytest.approx(1.38, abs=0.01)


def test_the_bundled_file_is_what_the_curation_makes(shared: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, 'tools'); import curate_offers as c;"
        "import io, csv; out = io.StringIO(newline='');"
        "w = csv.DictWriter(out, c.COLUMNS, extrasaction='ignore', lineterminator='\\n'); w.writeheader();"
        "w.writerows(c.curate(c.rows_of(c.SURVEY))); sys.stdout.buffer.write(out.getvalue().encode())"
    )
    made = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout
    assert made == (ROOT / "src/stoker/catalogue/data/offers.csv").read_bytes()


# --- age


def test_freshness_by_price_kind() -> None:
    def state(days: int, **cells: object) -> str:
        seen = (TODAY - datetime.timedelta(days=days)).isoformat()
        return freshness(snapshot_of([row(observed_at=seen, **cells)]).offers[0], TODAY)

    assert [state(d) for d in (30, 31, 90, 91)] == ["fresh", "aging", "aging", "stale"]
    assert [state(d, provider="lambda") for d in (7, 8, 30, 31)] == ["fresh", "aging", "aging", "stale"]
    assert [state(d, provider="unheard-of") for d in (7, 31)] == ["fresh", "stale"]
    assert [state(d, price_kind="spot") for d in (3, 4, 14, 15)] == ["fresh", "aging", "aging", "stale"]
    assert [state(d, price_kind="marketplace") for d in (0, 1, 2)] == ["aging", "aging", "stale"]


def test_an_undated_price_is_infinitely_stale() -> None:
    snapshot = snapshot_of([row(observed_at="")])
    offer = snapshot.offers[0]
    assert snapshot.date is None
    assert age_days(offer, TODAY) is None
    assert freshness(offer, TODAY) == "stale"
    assert price_spread_frac(offer, TODAY) == 1.0


def test_spot_widens_as_measured() -> None:
    def spread(days: int) -> float:
        seen = (TODAY - datetime.timedelta(days=days)).isoformat()
        return price_spread_frac(snapshot_of([row(price_kind="spot", observed_at=seen)]).offers[0], TODAY)

    assert spread(30) == pytest.approx(0.20)
    assert spread(180) == pytest.approx(0.55, abs=0.001)
    assert spread(0) == 0.0
    assert spread(7) < spread(30) < spread(90) < spread(180) <= spread(5000) <= 1.0


def test_case_44_a_stale_price_does_not_beat_one_that_is_not() -> None:
    rows = [
        row(provider="lambda", instance="old", usd_per_hour=0.9, observed_at="2026-10-21"),  # 40 days
        row(provider="nebius", instance="new", usd_per_hour=1.0, observed_at="2026-11-25"),
    ]
    snapshot = snapshot_of(rows)
    assert [o.instance for o in matching_offers(snapshot, "L4", 1, HardwareSpec(), TODAY)] == ["new", "old"]
    assert [o.instance for o in matching_offers(snapshot, "L4", 1, HardwareSpec())] == ["old", "new"]


# --- matching


def names(found: tuple[Offer, ...]) -> list[str]:
    return [offer.label for offer in found]


def test_the_product_is_exact() -> None:
    found = matching_offers(load_snapshot(), "H100-PCIe-80GB", 1, HardwareSpec())
    assert found and {o.gpu for o in found} == {"H100-PCIe-80GB"}


def test_a_bigger_instance_only_where_no_exact_one_is_sold() -> None:
    rows = [
        row(instance="one"),
        row(instance="four", gpu_count=4, usd_per_hour=4.0),
        row(instance="eight", gpu_count=8, usd_per_hour=8.0),
        row(provider="azure", instance="eight-only", gpu_count=8, usd_per_hour=9.0),
    ]
    snapshot = snapshot_of(rows)
    assert names(matching_offers(snapshot, "L4", 1, HardwareSpec())) == ["one", "eight-only"]
    assert names(matching_offers(snapshot, "L4", 3, HardwareSpec())) == ["four", "eight-only"]
    assert matching_offers(snapshot, "L4", 3, HardwareSpec())[0].usd_per_hour == 4.0  # the whole instance is paid
    assert names(matching_offers(snapshot, "L4", 9, HardwareSpec())) == []


def test_several_nodes_are_several_instances() -> None:
    snapshot = snapshot_of([row(instance="eight", gpu_count=8, usd_per_hour=8.0), row(instance="two", gpu_count=2)])
    (found,) = matching_offers(snapshot, "L4", 16, HardwareSpec(nodes=2))
    assert (found.label, found.gpu_count, found.usd_per_hour) == ("2 x eight", 16, 16.0)
    assert matching_offers(snapshot, "L4", 9, HardwareSpec(nodes=2)) == ()


def test_filters() -> None:
    rows = [
        row(provider="aws", instance="a"),
        row(provider="aws", instance="a", price_kind="spot", usd_per_hour=0.5),
        row(provider="gcp", instance="g", region="asia-northeast3", usd_per_hour=1.1),
    ]
    snapshot = snapshot_of(rows)

    def kinds(**keys: object) -> list[tuple[str, str]]:
        found = matching_offers(snapshot, "L4", 1, HardwareSpec(**keys))  # type: ignore[arg-type]
        return [(o.provider, o.price_kind) for o in found]

    assert kinds() == [("aws", "spot"), ("aws", "on_demand"), ("gcp", "on_demand")]
    assert kinds(spot="never") == [("aws", "on_demand"), ("gcp", "on_demand")]
    assert kinds(spot="only") == [("aws", "spot")]
    assert kinds(providers=["GCP"]) == [("gcp", "on_demand")]
    assert kinds(regions=["us-east-1"]) == [("aws", "spot"), ("aws", "on_demand")]


def test_ties_do_not_depend_on_the_order_of_rows() -> None:
    rows = [row(provider=p, instance=i) for p in ("gcp", "aws", "azure") for i in ("b", "a")]
    forward = matching_offers(snapshot_of(rows), "L4", 1, HardwareSpec())
    backward = matching_offers(snapshot_of(rows[::-1]), "L4", 1, HardwareSpec())
    assert forward == backward
    assert [(o.provider, o.instance) for o in forward][:2] == [("aws", "a"), ("aws", "b")]


# --- the rest of the catalogue


def test_a_file_that_is_no_table_of_offers(tmp_path: Path) -> None:
    for name, data in (
        ("missing.csv", None),
        ("short.csv", b"provider,gpu\naws,L4\n"),
        ("binary.csv", b"\xff\xfe\x00"),
    ):
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(PlanningError) as caught:
            load_snapshot(path)
        assert caught.value.code == "ST302"
        assert name in caught.value.place


def test_provider_facts_are_blank_where_nothing_was_citable() -> None:
    assert provider("lambda").billing_granularity_s == 60
    assert provider("AWS").spot_notice_s == 120
    assert provider("aws").billing_granularity_s is None
    assert provider("nobody").source == "not in the table"
    assert {o.provider for o in load_snapshot().offers} <= set(all_providers())


def test_the_exchange_rate_is_dated() -> None:
    krw = exchange_rate("krw")
    assert (krw.units_per_usd, krw.date) == (1335.27, "2026-10-30")
    snapshot = load_snapshot()
    assert (snapshot.usd_krw, snapshot.usd_krw_date) == (1335.27, "2026-10-30")
    with pytest.raises(PlanningError) as caught:
        exchange_rate("XYZ")
    assert caught.value.code == "ST304"


def test_loading_is_quick() -> None:
    """20 ms is the budget (about 11 here): a fresh interpreter, best of three, doubled for a busy machine."""
    code = (
        "import time, stoker.catalogue.offers as o, stoker.catalogue.gpus as g; t = time.perf_counter();"
        "g.all_devices(); o.load_snapshot(); print(time.perf_counter() - t)"
    )
    seconds = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)]
    assert min(seconds) < 0.040
