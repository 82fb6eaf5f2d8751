"""Impossible prices never win: a GPU price for an instance, hosts alone, spot above on-demand (cases 42, 44, 45)."""

import pytest
from offer_rows import issues_of, peers, row

from stoker.catalogue.offer_checks import describe_issue
from stoker.catalogue.offers import load_snapshot, matching_offers, snapshot_of
from stoker.core.job import HardwareSpec

# --- case 42: a GPU's price and an instance's price


def test_case_42_the_price_is_the_instances() -> None:
    rows = [
        row(provider="runpod", instance="8x A4000", gpu="RTX-A4000", gpu_count=8, usd_per_hour=1.28, price_kind="spot")
    ]
    offer = snapshot_of(rows).offers[0]
    assert offer.usd_per_hour == 1.28
    assert offer.usd_per_gpu_hour == pytest.approx(0.16)


def test_case_42_a_gpus_price_given_for_the_instance_is_caught() -> None:
    rows = [*peers("H100-SXM5-80GB", 10.0), row(instance="eight", gpu="H100-SXM5-80GB", gpu_count=8, usd_per_hour=6.88)]
    snapshot = snapshot_of(rows)
    assert "eight" not in {o.instance for o in snapshot.offers}
    assert issues_of(snapshot)["price_of_one_gpu"].severity == "quarantined"


def test_case_42_an_instances_price_given_for_each_gpu_is_caught() -> None:
    rows = [*peers("RTX-A4000", 0.16), row(instance="eight", gpu="RTX-A4000", gpu_count=8, usd_per_hour=8 * 1.28)]
    snapshot = snapshot_of(rows)
    assert "eight" not in {o.instance for o in snapshot.offers}
    assert issues_of(snapshot)["price_times_count"].severity == "quarantined"


def test_case_42_two_tiers_are_two_offers() -> None:
    rows = [row(instance="community", usd_per_hour=0.98), row(instance="secure", usd_per_hour=1.52)]
    found = matching_offers(snapshot_of(rows), "L4", 1, HardwareSpec())
    assert [(o.instance, o.usd_per_hour) for o in found] == [("community", 0.98), ("secure", 1.52)]


# --- case 44: impossible prices never win


@pytest.mark.parametrize("text", ["nan", "NaN", "", "0", "0.0", "-1", "inf", "-inf", "free", "1,2"])
def test_case_44_what_is_no_price_is_dropped_with_its_line(text: str) -> None:
    snapshot = snapshot_of([row(), row(instance="bad", usd_per_hour=text)], name="prices.csv")
    assert [o.instance for o in snapshot.offers] == ["i"]
    issue = issues_of(snapshot)["not_a_price"]
    assert (issue.severity, issue.place) == ("dropped", "prices.csv:3")
    assert describe_issue(issue).endswith("is not a price")


def test_case_44_a_b200_for_a_cent_cannot_win() -> None:
    rows = [*peers("B200-SXM-180GB", 6.0), row(provider="somebody", gpu="B200-SXM-180GB", usd_per_hour=0.01)]
    snapshot = snapshot_of(rows)
    assert issues_of(snapshot)["outside_class"].offer is not None
    assert matching_offers(snapshot, "B200-SXM-180GB", 1, HardwareSpec())[0].usd_per_hour == pytest.approx(5.4)


def test_case_44_spot_above_on_demand_is_set_aside() -> None:
    rows = [
        row(provider="runpod", gpu="A40", usd_per_hour=0.44),
        row(provider="runpod", gpu="A40", usd_per_hour=0.49, price_kind="spot"),
    ]
    snapshot = snapshot_of(rows)
    assert [o.price_kind for o in snapshot.offers] == ["on_demand"]
    assert issues_of(snapshot)["spot_not_below"].severity == "quarantined"


@pytest.mark.parametrize(
    ("instance", "gpu", "usd"), [("a2-highgpu-1g", "A100-SXM4-40GB", 0.94), ("a3-highgpu-1g", "H100-SXM5-80GB", 1.6)]
)
def test_case_44_a_host_without_its_gpu_cannot_win(instance: str, gpu: str, usd: float) -> None:
    """Google sells host and GPU as separate lines; beside the bundled prices the host alone is set aside."""
    real = [
        row(provider=o.provider, instance=o.instance, region=o.region, gpu=o.gpu, gpu_count=o.gpu_count)
        | {"price_kind": o.price_kind, "usd_per_hour": str(o.usd_per_hour)}
        for o in load_snapshot().offers
        if o.gpu == gpu
    ]
    snapshot = snapshot_of([*real, row(provider="gcp", instance=instance, region="x", gpu=gpu, usd_per_hour=usd)])
    caught = issues_of(snapshot)["outside_class"].offer
    assert caught is not None and caught.region == "x"
    assert len(snapshot.offers) == len(real)


@pytest.mark.parametrize(("ratio", "kept"), [(0.39, False), (0.41, True), (2.99, True), (3.01, False)])
def test_the_band_around_the_class_median(ratio: float, kept: bool) -> None:
    rows = [row(provider=p, instance="peer") for p in ("aws", "gcp", "azure")]  # three at 1.00: the median of four too
    rows.append(row(provider="oci", instance="x", usd_per_hour=ratio))
    assert ("x" in {o.instance for o in snapshot_of(rows).offers}) == kept


def test_tiers_have_their_own_medians() -> None:
    """An H100 at 1.74 on a marketplace is real although hyperscalers ask 10: neither is set aside."""
    rows = [*peers("H100-SXM5-80GB", 10.0)]
    rows += [row(provider=p, gpu="H100-SXM5-80GB", usd_per_hour=u) for p, u in (("lambda", 3.99), ("nebius", 4.5))]
    rows.append(row(provider="runpod", gpu="H100-SXM5-80GB", usd_per_hour=3.49))
    rows.append(row(provider="vastai", gpu="H100-SXM5-80GB", usd_per_hour=1.74, price_kind="marketplace"))
    assert len(snapshot_of(rows).offers) == 7


def test_of_two_rows_for_one_instance_the_newer_counts() -> None:
    rows = [row(usd_per_hour=2, observed_at="2026-11-01"), row(usd_per_hour=3, observed_at="2026-10-01")]
    snapshot = snapshot_of(rows)
    assert [o.usd_per_hour for o in snapshot.offers] == [2]
    assert issues_of(snapshot)["duplicate"].severity == "dropped"


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ({"gpu": "H100"}, "unknown_gpu"),
        ({"gpu": "Voodoo 2"}, "unknown_gpu"),
        ({"gpu_count": "0"}, "bad_row"),
        ({"gpu_count": "many"}, "bad_row"),
        ({"price_kind": "rent"}, "bad_row"),
        ({"observed_at": "yesterday"}, "bad_row"),
    ],
)
def test_a_row_that_cannot_be_read_is_dropped_not_guessed(cells: dict[str, str], kind: str) -> None:
    snapshot = snapshot_of([row(**cells)])
    assert not snapshot.offers
    assert issues_of(snapshot)[kind].severity == "dropped"
    assert describe_issue(issues_of(snapshot)[kind])


# --- case 45: memory


def test_case_45_a_memory_field_that_contradicts_the_product_is_reported() -> None:
    cells = {"instance": "gpu_8x_a100_80gb_sxm4", "gpu": "A100-SXM4-80GB", "gpu_count": 8, "usd_per_hour": 22.32}
    snapshot = snapshot_of([row(**cells) | {"claimed_gpu_gb": str(40960 * 2**20 / 1e9)}])
    issue = issues_of(snapshot)["memory_conflict"]
    assert issue.severity == "flagged"
    assert len(snapshot.offers) == 1
    assert "80" in describe_issue(issue) and "43" in describe_issue(issue)
    assert float(issue.values["ours_gb"]) * float(issue.values["gpu_count"]) == 640
