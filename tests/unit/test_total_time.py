"""The whole run by lines: each stage of issue 3's list is one, and spot pays for expected restarts."""

from dataclasses import replace

import pytest

from planning import KCELECTRA, comments_job, plan_of, prices
from stoker.core.plan import Candidate
from stoker.estimators.total_time import LINES, with_restarts


def candidate(spot: bool) -> Candidate:
    job = comments_job(gpus=["L4"], num_gpus=1)
    kinds = replace(prices(), offers=tuple(o for o in prices().offers if (o.price_kind == "spot") is spot))
    return plan_of(job, KCELECTRA, prices=kinds).candidates[0]


def test_every_stage_of_a_run_is_a_line_and_they_sum_to_the_total() -> None:
    time = candidate(spot=False).time
    assert tuple(time.total_terms) == LINES
    assert sum(time.total_terms.values()) == pytest.approx(time.total_s)
    assert time.total_terms["image"] > 0.0 < time.total_terms["download"]
    assert time.total_terms["restarts"] == 0.0


def test_a_spot_offer_pays_expected_restarts_and_an_on_demand_one_does_not() -> None:
    steady, spot = candidate(spot=False).time, candidate(spot=True).time
    assert spot.total_terms["restarts"] > 0.0
    assert spot.total_s == pytest.approx(steady.total_s + spot.total_terms["restarts"])


def test_one_interruption_a_day_costs_a_start_and_half_a_save_interval() -> None:
    """A run of a day on a machine lost once a day is interrupted once on average."""
    time = candidate(spot=False).time
    day = replace(time, total_s=86_400.0, restart_s=600.0)
    assert with_restarts(day, mtbf_s=86_400.0).total_terms["restarts"] == pytest.approx(600.0)
    starting = sum(time.total_terms[name] for name in ("boot", "image", "download", "load", "compile", "warm_up"))
    assert time.restart_s > starting
