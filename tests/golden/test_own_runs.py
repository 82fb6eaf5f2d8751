"""Proves that today's constants still predict the real runs whose records ship under benchmarks/records.

Each folder holds the plan and the record of one run of `benchmarks/h200`; the plan's job is planned again as it stands
and compared with what the record measured. Bars: step time within the stated interval (these runs wait for the host,
and the same job took 49 ms a step on one H200 machine and 29 ms on another), reserved memory within 15 %.
"""

import datetime
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.models.api import arch_from_config
from stoker.core.plan import Candidate
from stoker.core.plan_io import read_plan
from stoker.core.record import RunRecord
from stoker.core.record_io import read_record
from stoker.planner.api import make_plan

RUNS = Path(__file__).resolve().parents[2] / "benchmarks" / "records" / "2026-11-30-h200"
NAMES = ["kcelectra-epoch", "smollm2-gsm8k-full", "smollm2-gsm8k-lora"]


def planned_again(name: str) -> tuple[Candidate, RunRecord]:
    plan = read_plan(RUNS / name / "plan.json")
    hardware = replace(plan.job.hardware, here=False, gpus=["H200-SXM-141GB"], num_gpus=1)
    job = replace(plan.job, hardware=hardware)
    labels = len(job.data.labels) if isinstance(job.data.labels, list) else None
    arch = arch_from_config(plan.model.config, task=job.task, num_labels=labels, name=plan.model.name)
    again = make_plan(
        job, plan.profile, plan.model, arch, None, load_efficiency(), here=None, today=datetime.date(2026, 11, 30)
    )
    return again.candidates[0], read_record(RUNS / name)


def test_the_same_job_on_a_faster_host_is_predicted() -> None:
    """KcELECTRA at batch 64 took 29.4 ms a step on another H200 machine of the same day (benchmarks/LOG.md)."""
    candidate, _ = planned_again("kcelectra-epoch")
    spread = load_efficiency().speed(candidate.cluster.device, "bf16").spread_frac
    assert candidate.time.step_s / (1.0 + spread) < 0.0294 < candidate.time.step_s * (1.0 + spread)


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run_is_predicted(name: str) -> None:
    candidate, record = planned_again(name)
    step_s = statistics.median(line.step_s for line in record.steps)
    spread = load_efficiency().speed(candidate.cluster.device, "bf16").spread_frac
    assert candidate.time.step_s / (1.0 + spread) < step_s < candidate.time.step_s * (1.0 + spread)
    assert record.end is not None
    outside = candidate.memory.terms["framework"]  # the record reads the allocator, which does not hold the context
    reserved = record.end["peak_reserved_bytes"]
    assert candidate.memory.expected_bytes - outside == pytest.approx(reserved, rel=0.15)
    assert candidate.memory.peak_allocated_bytes == pytest.approx(record.end["peak_allocated_bytes"], rel=0.06)
    assert candidate.memory.low_bytes < reserved + outside < candidate.memory.high_bytes
