"""Peak allocated bytes of our own step three ways: traced over fake tensors, analytic, and measured on an H200.

    python benchmarks/trace_vs_analytic.py [--cells NAME ...]

The measured column is benchmarks/records/2026-11-30-h200-components/grid.json (what `component_grid.py` wrote: the
engine's own parts, 2 + 6 steps). Large shapes that were not measured have an empty cell. Prints a Markdown table.
"""

import argparse
import datetime
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.models.api import arch_from_config
from stoker.catalogue.models.lookup.bundled import find_bundled
from stoker.core.job import DataSpec, HardwareSpec, Job, RunPins, TrainSpec, TuneSpec
from stoker.core.plan import Plan, ResolvedModel
from stoker.core.profile import DataProfile, lengths_declared
from stoker.engine.trace_estimate import TraceGap, trace_memory
from stoker.estimators.scenario import fullest_batch
from stoker.planner.api import make_plan
from stoker.planner.breakdown import evaluator_of

_GRID = Path(__file__).parent / "records" / "2026-11-30-h200-components" / "grid.json"
_LABELS = [f"label{number}" for number in range(10)]
# model, task, method, precision, micro-batch, tokens, recompute, loss
CELLS = (
    ("kcelectra", "text_classification", "full", "bf16_amp", 64, 128, "none", "eager"),
    ("kcelectra", "text_classification", "full", "bf16", 64, 512, "none", "eager"),
    ("kcelectra", "text_classification", "lora", "bf16_amp", 64, 128, "none", "eager"),
    ("bert-base", "text_classification", "full", "fp32", 32, 384, "none", "eager"),
    ("bert-large", "text_classification", "full", "bf16", 64, 512, "none", "eager"),
    ("vit-base-patch16-224", "image_classification", "full", "bf16_amp", 128, 1, "none", "eager"),
    ("resnet-50", "image_classification", "full", "bf16_amp", 128, 1, "none", "eager"),
    ("convnext-tiny", "image_classification", "full", "bf16_amp", 128, 1, "none", "eager"),
    ("smollm2-135m", "causal_lm", "full", "bf16", 8, 2048, "none", "eager"),
    ("smollm2-135m", "causal_lm", "full", "bf16", 8, 2048, "full", "chunked"),
    ("qwen2.5-0.5b", "causal_lm", "lora", "bf16", 8, 2048, "none", "eager"),
    ("qwen2.5-0.5b", "causal_lm", "full", "bf16", 8, 512, "full", "chunked"),
    ("llama-3.2-1b", "causal_lm", "full", "bf16", 4, 2048, "none", "eager"),
    ("llama-3.2-1b", "causal_lm", "lora", "bf16", 4, 2048, "full", "chunked"),
    ("qwen2.5-1.5b", "causal_lm", "full", "bf16_pure", 4, 2048, "full", "chunked"),
    ("qwen2.5-7b", "causal_lm", "lora", "bf16", 1, 2048, "none", "eager"),
    ("llama-3.1-8b", "causal_lm", "lora", "bf16", 2, 8192, "full", "chunked"),
    ("llama-3.1-8b", "causal_lm", "full", "bf16_pure", 1, 2048, "full", "chunked"),
)


def plan_of(cell: tuple[Any, ...]) -> Plan:
    """The plan of one cell on one H200, everything pinned."""
    name, task, method, precision, micro_batch, tokens, recompute, loss = cell
    model = find_bundled(name)
    assert model is not None, name
    classes = {"labels": _LABELS} if task != "causal_lm" else {}
    job = Job(
        model=model.hub_id,
        task=task,
        problem="single_label",
        data=DataSpec(num_samples=1000, tokens_mean=tokens, tokens_p99=tokens, tokens_max=tokens, **classes),
        tune=TuneSpec(method=method),
        train=TrainSpec(global_batch_size=micro_batch, seq_len=None if task == "image_classification" else tokens),
        hardware=HardwareSpec(gpus=["H200-SXM-141GB"], num_gpus=1),
        run=RunPins(
            precision=precision, recompute=recompute, loss=loss, micro_batch_size=micro_batch, attention="sdpa"
        ),
    )
    profile = DataProfile(num_samples=1000, lengths=lengths_declared(tokens, tokens, tokens), num_labels=10)
    arch = arch_from_config(model.config, task=task, num_labels=10 if classes else None, name=model.hub_id)
    return make_plan(
        job,
        profile,
        ResolvedModel(name=model.hub_id, config=dict(model.config)),
        arch,
        None,
        replace(load_efficiency(), corrections=()),
        here=None,
        today=datetime.date(2026, 11, 30),
    )


def measured_cells() -> Mapping[tuple[Any, ...], int]:
    """Peak allocated bytes by cell."""
    keys = ("model", "task", "method", "precision", "micro_batch_size", "seq_len", "recompute", "loss")
    rows = json.loads(_GRID.read_text(encoding="utf-8"))["cells"]
    return {
        tuple(row[key] for key in keys): row["peak_allocated_bytes"]
        for row in rows
        if row["attention"] == "sdpa" and row.get("peak_allocated_bytes")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="*", help="only cells whose name holds one of these")
    options = parser.parse_args()
    measured, efficiency = measured_cells(), replace(load_efficiency(), corrections=())
    print("| cell | measured GB | traced | analytic | traced against analytic | seconds |\n|---|---|---|---|---|---|")
    for cell in CELLS:
        name = "/".join(map(str, (cell[0], *cell[2:])))
        if options.cells and not any(part in name for part in options.cells):
            continue
        plan = plan_of(cell)
        candidate = plan.candidates[0]
        batch = fullest_batch(evaluator_of(plan, efficiency).scenario(candidate.cluster, candidate.run_config))
        start = time.perf_counter()
        traced = trace_memory(plan, candidate, samples=round(batch.samples), seq_len=ceil(batch.tokens / batch.samples))
        spent = time.perf_counter() - start
        analytic, truth = candidate.memory.peak_allocated_bytes, measured.get(cell)
        if isinstance(traced, TraceGap):
            print(f"| {name} | {_gb(truth)} | {traced.reason} | {_against(analytic, truth)} | | {spent:.0f} |")
            continue
        peak = traced.peak_allocated_bytes
        print(
            f"| {name} | {_gb(truth)} | {_against(peak, truth)} | {_against(analytic, truth)} "
            f"| {peak / analytic - 1:+.1%} | {spent:.0f} |",
            flush=True,
        )


def _gb(value: int | None) -> str:
    return "" if value is None else f"{value / 1e9:.2f}"


def _against(value: int, truth: int | None) -> str:
    return _gb(value) if truth is None else f"{_gb(value)} ({value / truth - 1:+.1%})"


if __name__ == "__main__":
    main()
