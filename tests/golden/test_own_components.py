"""Own component truth: 93 cells that benchmarks/component_grid.py measured on an H200 (size, recompute, LoRA, length).

Its allocated peaks and context are judged here, its steps by tools/fit_efficiency.py. Reserved bytes are not: the grid
builds its models in fp32 on the GPU, which runs do not do (benchmarks/LOG.md).
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.gpus import find_device
from stoker.catalogue.models.api import arch_from_config
from stoker.catalogue.models.lookup.bundled import find_bundled
from stoker.core.hardware import Cluster
from stoker.core.job import DataSpec, Job, TrainSpec, TuneSpec
from stoker.core.profile import lengths_constant
from stoker.core.run_config import RunConfig
from stoker.core.stack import OURS
from stoker.estimators.ledger_sums import sum_ledger
from stoker.estimators.memory import estimate_memory
from stoker.estimators.scenario import Scenario
from stoker.techniques.passes import apply_passes

RECORDS = Path(__file__).parents[2] / "benchmarks" / "records" / "2026-11-30-h200-components"
H200 = find_device("H200-SXM-141GB")


def scenario(cell: dict[str, Any]) -> Scenario:
    bundled = find_bundled(cell["model"])
    assert bundled is not None
    labels = None if cell["task"] == "causal_lm" else 10
    batch, seq_len = cell["micro_batch_size"], cell["seq_len"]
    job = Job(
        model=cell["model"],
        task=cell["task"],
        data=DataSpec(num_samples=1, labels="label"),
        tune=TuneSpec(method=cell["method"], rank=16),
        train=TrainSpec(global_batch_size=batch, seq_len=seq_len),
    )
    choices = {name: cell[name] for name in ("precision", "recompute", "loss", "attention")}
    config = RunConfig(micro_batch_size=batch, gradient_accumulation_steps=1, global_batch_size=batch, **choices)
    ledger = apply_passes(
        arch_from_config(bundled.config, task=cell["task"], num_labels=labels, name=cell["model"]), job, config
    )
    return Scenario(
        task=job.task,
        optimizer="adamw",
        ledger=ledger,
        sums=sum_ledger(ledger),
        config=config,
        cluster=Cluster(device=H200, num_gpus=1),
        lengths=lengths_constant(seq_len),
        efficiency=replace(load_efficiency(), corrections=()),
        stack=OURS,
    )


@cache
def grid() -> dict[str, Any]:
    return json.loads((RECORDS / "grid.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


@cache
def ratios() -> tuple[tuple[dict[str, Any], float], ...]:
    """(cell, predicted over measured allocated peak)."""
    return tuple(
        (cell, estimate_memory(scenario(cell)).peak_allocated_bytes / cell["peak_allocated_bytes"])
        for cell in grid()["cells"]
    )


def test_allocated_peaks_of_the_grid_are_met() -> None:
    errors = sorted(abs(ratio - 1.0) for _cell, ratio in ratios())
    assert len(errors) == 93
    assert median(errors) < 0.04 and errors[round(0.9 * 92)] < 0.12 and errors[-1] < 0.15
    assert min(ratio for _cell, ratio in ratios()) > 0.92  # too low is what costs a run


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_no_method_or_recompute_is_met_by_the_average_alone(method: str, recompute: str) -> None:
    part = [ratio for cell, ratio in ratios() if (cell["method"], cell["recompute"]) == (method, recompute)]
    assert len(part) >= 10 and 0.97 < median(part) < 1.10


@pytest.mark.parametrize(("kernel", "most"), [("eager", 1.001), ("chunked", 1.14)])
def test_loss_kernels_take_their_bytes_a_logit(kernel: str, most: float) -> None:
    """Forward and backward of the loss alone, the head's gradient included: 12 bytes of every logit, exactly.

    Of a chunk of 1,024 tokens 10 are counted and 8 measured: its 16-bit logits are gone when the fp32 ones peak.
    """
    from stoker.techniques.loss import loss

    technique = loss(kernel)
    rows = [row for row in grid()["losses"] if row["loss_kernel"] == kernel]
    assert len(rows) == 6
    for row in rows:
        logits = technique.logits_bytes(row["tokens"], row["vocab"], 2.0)
        held = technique.held_bytes(row["tokens"], row["vocab"], 2.0)
        head = technique.head_bytes(row["vocab"] * row["hidden"], 2.0)
        assert 0.999 <= (logits - held + head) / row["peak_bytes"] <= most, row


def test_the_context_of_an_h200_is_what_was_measured() -> None:
    outside = load_efficiency().framework(H200)
    assert outside.source == "measured" and outside.context_bytes / 2**20 == pytest.approx(692, abs=1)


def test_case_4_the_first_step_brings_eight_bytes_a_parameter_and_a_multi_tensor_step_four_more() -> None:
    """fp32 AdamW: of 32,111,170 parameters 256.9 MB that stay, and up to 128.4 MB while torch steps them at once."""
    cell = next(c for c in grid()["cells"] if c["model"] == "smollm2-135m" and c["method"] == "full")
    plain = scenario({**cell, "precision": "fp32"})
    many = replace(plain, stack=replace(plain.stack, foreach_step=True))
    learns = plain.ledger.num_trainable
    one, all_at_once = estimate_memory(plain), estimate_memory(many)
    assert one.terms["optimizer_states"] == 8 * learns
    assert one.phases["optimizer"] - one.phases["load"] >= 12 * learns  # gradients and both moments
    transient = all_at_once.phases["optimizer"] - one.phases["optimizer"] + plain.sums.step_temp_bytes
    assert transient == pytest.approx(4 * learns, rel=1e-6)
