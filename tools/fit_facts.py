"""Measured steps for the fit of speed constants: rows that ship, a public table, and our own grid on an H200."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stoker.catalogue.gpus import find_device
from stoker.catalogue.measurements import all_measurements
from stoker.catalogue.models.api import arch_from_config
from stoker.catalogue.models.lookup.bundled import find_bundled
from stoker.core.efficiency import Efficiency
from stoker.core.hardware import Cluster
from stoker.core.job import DataSpec, Job, TrainSpec, TuneSpec
from stoker.core.measurement import Measurement
from stoker.core.profile import lengths_constant
from stoker.core.run_config import RunConfig
from stoker.core.stack import OURS
from stoker.estimators.ledger_sums import sum_ledger
from stoker.estimators.scenario import Scenario
from stoker.estimators.step_time import estimate_step
from stoker.techniques.passes import apply_passes
from stoker.validation.physics import impossible
from stoker.validation.predict import Prediction, predict
from stoker.validation.run import ratio_of
from stoker.validation.table import read_table
from stoker.validation.trial import NotScored, build_trial

GRID = Path(__file__).resolve().parents[1] / "benchmarks" / "records" / "2026-11-30-h200-components" / "grid.json"
OWN = "stoker on an H200"
TIME = ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s_per_gpu")
USED = ("measured", "user-report")
LABELS = 10  # of the grid's classifiers


@dataclass(frozen=True, slots=True)
class Fact:
    """A measured step: seconds, and the scenario whose step should take them. `key`: the same work on other GPUs."""

    scenario: Scenario
    measured_s: float
    source: str
    stack: str
    gpu: str
    model: str
    label: str
    family: tuple[str, str]
    key: tuple[object, ...]
    blind: Scenario | None = None  # the same with the program unknown: the row `*`


def all_facts(paths: Iterable[Path], efficiency: Efficiency) -> list[Fact]:
    """Facts of `paths`, of the rows that ship and are not among them, and of the grid; several readings count once."""
    found: dict[tuple[object, ...], Fact] = {}
    tables = [row.measurement for path in paths for row in read_table(path) if row.measurement is not None]
    told = {(m.source, f"{m.value:.6g}") for m in tables}
    shipped = [m for m in all_measurements() if (m.source, f"{m.value:.6g}") not in told]
    for measurement in (*tables, *shipped):
        fact = _fact(measurement, efficiency)
        if fact is not None:
            kept = found.setdefault(measurement.run, fact)
            if measurement.metric == "step_time_s" and kept is not fact:
                found[measurement.run] = fact  # the reading nearest to what is predicted
    return [*found.values(), *grid_facts(GRID, efficiency)]


def _fact(measurement: Measurement, efficiency: Efficiency) -> Fact | None:
    if measurement.metric not in TIME or measurement.quality not in USED:
        return None
    trial = build_trial(measurement, efficiency)
    if isinstance(trial, NotScored):
        return None
    if impossible(trial):
        return None
    found = predict(trial)
    if not isinstance(found, Prediction):
        return None
    scenario = trial.scenario
    blind = build_trial(measurement, efficiency, unseen={measurement.source})
    seconds = estimate_step(scenario).step_s * scenario.stack.time_factor / ratio_of(measurement, found)
    m = measurement
    return Fact(
        scenario=scenario,
        measured_s=seconds,
        source=m.source,
        stack=scenario.stack.name,
        gpu=scenario.cluster.device.name,
        model=m.model,
        label=f"{m.line} {m.model} {m.method} {m.precision} {m.gpu} x{m.num_gpus} {scenario.config.label} s{m.seq_len}",
        family=_family(scenario),
        key=(m.source, m.model, m.method, m.precision, m.global_batch_size, m.seq_len, m.num_gpus),
        blind=None if isinstance(blind, NotScored) else blind.scenario,
    )


def _family(scenario: Scenario) -> tuple[str, str]:
    dtype = "tf32" if scenario.products == "tf32" else scenario.ledger.compute_dtype
    speed = scenario.efficiency.speed(scenario.cluster.device, dtype)
    return speed.family, speed.dtype


def grid_facts(path: Path, efficiency: Efficiency) -> Iterator[Fact]:
    """Cells of benchmarks/component_grid.py that ran."""
    if not path.exists():
        return
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if "median_step_s" in cell:
            scenario = _grid_scenario(cell, efficiency)
            yield Fact(
                scenario=scenario,
                measured_s=float(cell["median_step_s"]),
                source=OWN,
                stack=scenario.stack.name,
                gpu=scenario.cluster.device.name,
                model=cell["model"],
                label=f"{cell['model']} {cell['method']} {scenario.config.label} s{cell['seq_len']}",
                family=_family(scenario),
                key=(OWN, cell["model"], cell["method"], cell["precision"], scenario.config.label, cell["seq_len"]),
            )


def _grid_scenario(cell: dict[str, Any], efficiency: Efficiency) -> Scenario:
    batch, seq_len = int(cell["micro_batch_size"]), int(cell["seq_len"])
    bundled = find_bundled(cell["model"])
    assert bundled is not None, cell["model"]
    labels = None if cell["task"] == "causal_lm" else LABELS
    arch = arch_from_config(bundled.config, task=cell["task"], num_labels=labels, name=cell["model"])
    job = Job(
        model=cell["model"],
        task=cell["task"],
        data=DataSpec(num_samples=1, labels="label"),
        tune=TuneSpec(method=cell["method"], rank=16),
        train=TrainSpec(global_batch_size=batch, seq_len=seq_len),
    )
    config = RunConfig(
        micro_batch_size=batch,
        gradient_accumulation_steps=1,
        global_batch_size=batch,
        precision=cell["precision"],
        recompute=cell["recompute"],
        loss=cell["loss"],
        attention=cell["attention"],
    )
    ledger = apply_passes(arch, job, config)
    return Scenario(
        task=job.task,
        optimizer="adamw",
        ledger=ledger,
        sums=sum_ledger(ledger),
        config=config,
        cluster=Cluster(device=find_device("H200-SXM-141GB"), num_gpus=1),
        lengths=lengths_constant(seq_len),
        efficiency=efficiency,
        stack=replace(OURS, waits_for_data=False),  # the grid's batches lie on the device
    )
