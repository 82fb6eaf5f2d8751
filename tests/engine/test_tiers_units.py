"""One schedule for planning and running: the planner's units are the engine's, and what was planned is executed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from test_tiers_families import FAMILIES
from tiny_jobs import plan_here, sums_job, write_sums

from planning import lm_job, plan_of
from stoker.core.job import DataSpec, HardwareSpec, Job, RunPins, TrainSpec
from stoker.core.schedule import TierSchedule, UnitSpec
from stoker.engine import assemble
from stoker.engine.progress import Silent
from stoker.engine.run import run
from stoker.engine.tiers.assembly import lay_out
from stoker.engine.tiers.placing import as_planned, specs_of
from stoker.engine.tiers.units import HuggingFaceProgram

PINS = RunPins(placement="tiers", precision="bf16", recompute="full", micro_batch_size=1)
PADDING = 2048 + 20 * 128  # elements: a unit's buffer, and each of its parameters, start at whole blocks


def _planned(model: Any) -> TierSchedule:
    """The schedule of a plan that knows config.json alone."""
    config = {**model.config.to_dict(), "num_labels": 3, "tie_word_embeddings": model.config.tie_word_embeddings}
    if "Causal" in type(model).__name__ or "LMHead" in type(model).__name__:
        job = lm_job(gpus=["h200"], num_gpus=1, tokens=16, run=PINS)
    else:
        job = Job(
            model="model",
            task="text_classification",
            problem="single_label",
            data=DataSpec(labels=["a", "b", "c"], num_samples=1000, tokens_mean=16, tokens_p99=16, tokens_max=16),
            train=TrainSpec(global_batch_size=1, epochs=1),
            hardware=HardwareSpec(gpus=["h200"], num_gpus=1),
            run=PINS,
        )
    schedule = plan_of(job, config).candidates[0].schedule
    assert schedule is not None
    return schedule


def _specs(model: Any) -> list[UnitSpec]:
    program = HuggingFaceProgram(model, lambda *_a: torch.zeros(()), None)
    return specs_of(lay_out(program, {id(p): 0 for p in model.parameters()}, 32 << 20), 16 * 32 * 2)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "vit"])
def test_the_planner_cuts_a_model_as_the_engine_does(family: str) -> None:
    """Same units in the same order, the same parameters in each, bytes but for the engine's padding."""
    model = FAMILIES[family]().to(torch.bfloat16)
    planned, specs = _planned(model), _specs(model)
    assert [u.name for u in planned.units] == [u.name for u in specs]
    assert [u.trainable_params for u in planned.units] == [u.trainable_params for u in specs]
    assert [u.boundary_bytes for u in planned.units] == [u.boundary_bytes for u in specs]
    for ours, theirs in zip(specs, planned.units, strict=True):
        for kind, each in (("weight_bytes", 2), ("grad_bytes", 2), ("state_bytes", 10)):
            assert 0 <= getattr(ours, kind) - getattr(theirs, kind) <= each * PADDING
    executed = as_planned(specs, planned, micro_batches=1)
    assert executed is not None and executed.placements == planned.placements


def test_a_plan_of_another_chain_is_not_forced_on_the_model() -> None:
    planned = _planned(FAMILIES["llama"]().to(torch.bfloat16))
    assert as_planned(_specs(FAMILIES["bert"]().to(torch.bfloat16)), planned, micro_batches=1) is None


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_run_executes_the_schedule_of_its_plan(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    real = assemble.open_tiers
    monkeypatch.setattr(assemble, "open_tiers", lambda *a, **k: opened.append(real(*a, **k)) or opened[-1])
    tune = {"tune": {"method": "lora", "rank": 4}} if method == "lora" else {}
    pins = {"placement": "tiers", "recompute": "full", "micro_batch_size": 4}
    job = sums_job(write_sums(tmp_path), run=pins, train={"max_steps": 5}, **tune)
    plan = plan_here(tmp_path, job, "job.yaml")
    record = run(plan, tmp_path / "run", progress=Silent())
    planned = plan.candidates[0].schedule
    assert planned is not None and record.status == "finished"
    executed = opened[0].trainer.schedule
    assert executed.placements == planned.placements
    assert (executed.piece_bytes, executed.ring_pieces) == (planned.piece_bytes, planned.ring_pieces)
