"""Proves that MFU is taken against the right peak (case 37) and that a busy GPU that does nothing is seen (case 39)."""

import pytest

from stoker.catalogue.gpus import find_device
from stoker.observe.utilisation import RankState, judge_health, model_flops_utilisation


@pytest.mark.parametrize(
    ("tflops", "gpu", "share"),
    [
        (420.0, "H200-SXM-141GB", 0.424),  # not 21.2 % (sparse), not 84.9 % (TF32)
        (1.04 * 312.0, "H100-SXM5-80GB", 0.328),  # the run that showed 104 % against an A100's peak
        (156.0, "A100-SXM4-80GB", 0.5),  # 312 dense: neither 156 (TF32) nor 624 (sparse)
    ],
)
def test_case_37_share_of_the_dense_peak(tflops: float, gpu: str, share: float) -> None:
    found = model_flops_utilisation(tflops * 1e12, find_device(gpu), "bf16").value
    assert found == pytest.approx(share, abs=5e-4)


def test_case_37_more_than_the_peak_is_an_error_not_a_figure() -> None:
    reading = model_flops_utilisation(1.04 * 312e12, find_device("A100-SXM4-80GB"), "bf16")
    assert reading.value is None and "104%" in reading.reason
    assert model_flops_utilisation(-1.0, find_device("T4"), "fp16").value is None


def test_a_peak_that_the_device_lacks_is_a_gap_with_a_reason() -> None:
    reading = model_flops_utilisation(1e12, find_device("T4"), "bf16")
    assert reading.value is None and "bf16" in reading.reason


def _rank(rank: int, phase: str, since_s: float, step: int = 10, **more: float) -> RankState:
    return RankState(rank=rank, step=step, phase=phase, since_s=since_s, **more)  # type: ignore[arg-type]


def test_case_39_waiting_ranks_name_the_late_one_and_explain_the_figure() -> None:
    health = judge_health(
        [
            _rank(0, "collective", 60.0, busy_frac=1.0, power_frac=0.2),
            _rank(1, "compute", 60.0, busy_frac=0.0, power_frac=0.1),
        ],
        typical_step_s=0.5,
    )
    assert health.verdict == "waiting_for_rank" and health.late_ranks == (1,)
    assert "rank 1" in health.why and "60 s" in health.why and "a kernel was resident" in health.why


def test_case_39_one_gpu_at_full_figure_and_idle_power_is_stalled() -> None:
    health = judge_health([_rank(0, "compute", 60.0, busy_frac=1.0, power_frac=0.2)], 0.5)
    assert health.verdict == "stalled" and "power is at idle" in health.why


def test_a_rank_a_step_behind_is_the_late_one() -> None:
    ranks = [_rank(0, "collective", 60.0), _rank(1, "collective", 60.0), _rank(2, "data", 61.0, step=9)]
    assert judge_health(ranks, 0.5).late_ranks == (2,)


def test_all_in_the_collective_is_a_stall_of_all() -> None:
    health = judge_health([_rank(0, "collective", 60.0), _rank(1, "collective", 60.0)], 0.5)
    assert health.verdict == "stalled" and health.late_ranks == (0, 1)


def test_waiting_for_data_is_starvation_not_a_hang() -> None:
    health = judge_health([_rank(0, "data", 60.0), _rank(1, "data", 60.0)], 0.5)
    assert health.verdict == "starved"


def test_no_false_alarm_within_30_s_or_20_typical_steps() -> None:
    assert judge_health([_rank(0, "collective", 29.0), _rank(1, "compute", 29.0)], 0.5).verdict == "working"
    slow = [_rank(0, "collective", 150.0), _rank(1, "compute", 150.0)]
    assert judge_health(slow, 10.0).verdict == "working"
    assert judge_health(slow, 5.0).verdict == "waiting_for_rank"
    assert judge_health([], 1.0).verdict == "working"
