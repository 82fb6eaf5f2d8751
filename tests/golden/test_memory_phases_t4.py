"""Golden memory by component: every run of fitcheck-llm 0.3.1 on a T4, allocated and reserved, against our formulas.

The measurements stand in shared/data/validation/fitcheck_t4_components.csv (skipped where that is absent). Asked:
allocated within 2 % at the median and 5 % for nine of ten, the state after load within 2 %, reserved within 3 and 9 %.
"""

import csv
import statistics
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from stoker.catalogue.efficiency import load_efficiency
from stoker.core.estimate import MemoryEstimate
from stoker.core.measurement import Measurement
from stoker.estimators.memory import estimate_memory
from stoker.validation.trial import Trial, build_trial

FILE = Path(__file__).resolve().parents[3] / "shared" / "data" / "validation" / "fitcheck_t4_components.csv"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="public component measurements are not here")
MIB = 2**20


@dataclass(frozen=True)
class Run:
    row: dict[str, str]
    memory: MemoryEstimate

    def measured(self, name: str) -> float:
        return float(self.row[name]) * MIB


def a_measurement(row: dict[str, str]) -> Measurement:
    quantised = row["quantization"] == "nf4"
    return Measurement(
        source="fitcheck-llm 0.3.1 sdist",
        table="components",
        model=row["model"],
        metric="peak_mem_gb",
        value=1.0,
        unit="GiB (torch allocated)",
        method="qlora" if quantised else "lora",
        precision=f"fp16 {row['quantization']}",
        optimizer="adamw",
        gpu="T4",
        gpu_gb=16.0,
        num_gpus=1,
        strategy="single",
        micro_batch_size=int(row["micro_batch"]),
        seq_len=int(row["seq_len"]),
        recompute="full",
        attention=row["kernel"],
        note=f"r={row['lora_rank']}; targets={row['lora_targets'].split()!r}",
    )


@cache
def runs() -> tuple[Run, ...]:
    efficiency = replace(load_efficiency(), corrections=())
    found: dict[tuple[str, ...], Run] = {}
    with FILE.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            key = tuple(row[n] for n in ("model", "quantization", "kernel", "micro_batch", "seq_len"))
            if row["after_load_allocated_mib"] and key not in found:
                trial = build_trial(a_measurement(row), efficiency)
                assert isinstance(trial, Trial), trial
                found[key] = Run(row, estimate_memory(trial.scenario))
    return tuple(found.values())


def errors(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """(median, 90th percentile) of |predicted / measured - 1|."""
    found = sorted(abs(predicted / measured - 1.0) for predicted, measured in pairs)
    return statistics.median(found), found[int(0.9 * len(found))]


def test_there_are_over_fifty_runs_of_nine_models() -> None:
    assert len(runs()) >= 50
    assert len({run.row["model"] for run in runs()}) >= 9


def test_what_stands_after_loading() -> None:
    """Packed 4-bit weights and scales, fp32 leftovers (4.1 GiB of Qwen2.5-7B), fp32 adapters."""
    median, late = errors([(run.memory.terms["params"], run.measured("after_load_allocated_mib")) for run in runs()])
    assert median < 0.01
    assert late < 0.02


def test_gradients_and_optimizer_state_are_those_of_the_adapters() -> None:
    for run in runs():
        assert run.memory.terms["grads"] == pytest.approx(run.measured("gradient_mib"), rel=0.001)
        assert run.memory.terms["optimizer_states"] == pytest.approx(run.measured("optimizer_state_mib"), rel=0.001)


def test_the_allocated_peak() -> None:
    median, late = errors([(run.memory.peak_allocated_bytes, run.measured("peak_allocated_mib")) for run in runs()])
    assert median < 0.02
    assert late < 0.05


def test_reserved_and_process() -> None:
    reserved = [
        (run.memory.expected_bytes - run.memory.terms["framework"], run.measured("peak_reserved_mib")) for run in runs()
    ]
    process = [(float(run.memory.expected_bytes), run.measured("process_mib")) for run in runs()]
    for median, late in (errors(reserved), errors(process)):
        assert median < 0.03
        assert late < 0.09


def test_the_measured_process_is_within_the_interval() -> None:
    assert all(run.memory.low_bytes <= run.measured("process_mib") <= run.memory.high_bytes for run in runs())
