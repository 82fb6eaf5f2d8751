"""Proves that the learning rate depends on optimizer steps alone and ends where the run ends (case 19)."""

import math

import pytest

from stoker.core.lr_schedule import lr_factor, schedule_of, steps_per_epoch, total_steps, warmup_steps
from stoker.core.save_interval import young_daly_interval_s


def test_linear_is_half_in_the_middle_and_zero_at_the_end() -> None:
    rate = schedule_of(10_000, 0.0, "linear")
    assert rate(5_000) == 0.5
    assert rate(10_000) == 0.0
    assert rate(2_500) == 0.75  # the bug reaches 0 here with 4 ranks


@pytest.mark.parametrize(("ranks", "accumulation"), [(1, 1), (4, 1), (1, 4), (4, 4)])
def test_total_steps_know_no_ranks_and_no_accumulation(ranks: int, accumulation: int) -> None:
    micro = 64 // (ranks * accumulation)
    assert total_steps(640_000, micro * ranks * accumulation, 1.0) == 10_000


def test_warm_up_rises_from_the_first_update_and_meets_the_peak() -> None:
    assert warmup_steps(100, 0.06) == 6
    values = [lr_factor(step, 100, 6, "cosine") for step in range(101)]
    assert 0 < values[0] < values[5] < values[6] == 1.0
    assert values[53] == pytest.approx(0.5)
    assert values[100] == pytest.approx(0.0)
    assert lr_factor(99, 100, 6, "constant") == 1.0


def test_no_sample_is_dropped_and_fractions_round_up() -> None:
    assert steps_per_epoch(7, 4) == 2
    assert total_steps(97_461, 64, 1.0) == 1_523
    assert total_steps(100, 10, 0.25) == 3
    assert total_steps(100, 10, 3.0, max_steps=7) == 7


def test_young_daly_interval() -> None:
    assert young_daly_interval_s(10.0, 86_400.0) == pytest.approx(math.sqrt(2 * 10 * 86_400))
    assert young_daly_interval_s(0.0) == 30.0
    assert young_daly_interval_s(60.0, 600.0) == 3_000.0  # at most 2 % of the run goes into saving
