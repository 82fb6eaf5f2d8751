"""Cost of a run: billed time x price, tax, and an interval from both time and the age of the price."""

import datetime
import math

import pytest

from stoker.catalogue.provider_facts import provider
from stoker.core.job import GoalSpec
from stoker.core.offer import Offer, Provider
from stoker.estimators.cost import billed_s, estimate_cost

TODAY = datetime.date(2026, 11, 30)


def offer(**keys: object) -> Offer:
    values: dict[str, object] = {
        "provider": "lambda",
        "instance": "gpu_1x_a10",
        "region": "",
        "gpu": "A10",
        "gpu_count": 1,
        "price_kind": "on_demand",
        "usd_per_hour": 3.6,
        "observed_at": "2026-11-30",
        "source": "test",
    }
    return Offer(**(values | keys))  # type: ignore[arg-type]


def billing(granularity_s: float | None, minimum_s: float | None = None) -> Provider:
    return Provider(
        name="p",
        billing_granularity_s=granularity_s,
        billing_minimum_s=minimum_s,
        spot_notice_s=None,
        boot_s=None,
        source="test",
    )


@pytest.mark.parametrize(
    ("granularity_s", "minimum_s", "run_s", "billed"),
    [
        (60, None, 61, 120),
        (60, None, 60, 60),
        (60, None, 3600.0000000001, 3600),
        (1, 60, 5, 60),
        (3600, 3600, 3601, 7200),
        (None, None, 10.2, 11),
        (None, 60, 10.2, 60),
    ],
)
def test_billed_time(granularity_s: float | None, minimum_s: float | None, run_s: float, billed: float) -> None:
    assert billed_s(run_s, billing(granularity_s, minimum_s)) == pytest.approx(billed)


def test_lines_sum_to_the_total() -> None:
    cost = estimate_cost(3661, 3000, 4000, offer(), billing(60), GoalSpec(vat_frac=0.1), today=TODAY)
    assert set(cost.lines) == {"compute", "billing_rounding", "vat"}
    assert cost.lines["compute"] == pytest.approx(3.661)
    assert cost.lines["billing_rounding"] == pytest.approx(0.059)
    assert cost.lines["vat"] == pytest.approx(0.372)
    assert cost.total_usd == math.fsum(cost.lines.values()) == pytest.approx(3.72 * 1.1)
    assert cost.low_usd <= cost.total_usd <= cost.high_usd


def test_a_line_that_is_zero_is_left_out() -> None:
    cost = estimate_cost(3600, 3600, 3600, offer(), billing(60), GoalSpec(), today=TODAY)
    assert cost.lines == {"compute": pytest.approx(3.6)}


def test_a_price_of_today_has_only_the_interval_of_the_time() -> None:
    cost = estimate_cost(3600, 1800, 7200, offer(), billing(1), GoalSpec(), today=TODAY)
    assert (cost.low_usd, cost.high_usd) == pytest.approx((1.8, 7.2))


def test_an_old_spot_price_widens_the_interval() -> None:
    old = offer(price_kind="spot", observed_at="2026-10-31")
    cost = estimate_cost(3600, 3600, 3600, old, billing(1), GoalSpec(), today=TODAY)
    assert (cost.low_usd, cost.total_usd, cost.high_usd) == pytest.approx((3.6 * 0.8, 3.6, 3.6 * 1.2))


def test_an_undated_price_is_anything_from_nothing_to_double() -> None:
    cost = estimate_cost(3600, 3600, 3600, offer(observed_at=""), billing(1), GoalSpec(), today=TODAY)
    assert (cost.low_usd, cost.high_usd) == pytest.approx((0.0, 7.2))
    assert "without a date" in cost.source


def test_the_source_says_date_age_and_what_was_assumed() -> None:
    cost = estimate_cost(
        60, 60, 60, offer(provider="aws", observed_at="2026-07-20"), provider("aws"), GoalSpec(), today=TODAY
    )
    assert cost.as_of == "2026-07-20"
    assert "133 days ago: stale" in cost.source
    assert "per second assumed" in cost.source
    known = estimate_cost(60, 60, 60, offer(), provider("lambda"), GoalSpec(), today=TODAY)
    assert "assumed" not in known.source and "fresh" in known.source


def test_several_nodes_are_named_and_paid() -> None:
    pair = offer(num_instances=2, usd_per_hour=7.2, gpu_count=2)
    cost = estimate_cost(3600, 3600, 3600, pair, billing(1), GoalSpec(), today=TODAY)
    assert cost.instance == "2 x gpu_1x_a10"
    assert cost.total_usd == pytest.approx(7.2)


def test_case_42_eight_a4000_at_a_total_of_1_28_cost_1_28_an_hour() -> None:
    eight = offer(gpu="RTX-A4000", gpu_count=8, usd_per_hour=1.28, price_kind="spot")
    cost = estimate_cost(3600, 3600, 3600, eight, billing(1), GoalSpec(), today=TODAY)
    assert cost.total_usd == pytest.approx(1.28)  # never 10.24
    assert eight.usd_per_gpu_hour == pytest.approx(0.16)
