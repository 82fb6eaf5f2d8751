"""Proves that `stoker run` trains through the tier engine from the job file alone: text, classes, adapters, resume."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_jobs import ELECTRA, plan_here, sentiment_job, sums_job, write_sentiment, write_sums

from stoker.core.errors import RunError
from stoker.core.record import RunRecord
from stoker.engine.loop import Loop
from stoker.engine.progress import Silent
from stoker.engine.run import run
from stoker.engine.stopping import StopRequest

TIERS = {"placement": "tiers", "recompute": "full", "micro_batch_size": 4}


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sums(tmp_path_factory.mktemp("sums"))


@pytest.fixture(scope="module")
def sentiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentiment(tmp_path_factory.mktemp("sentiment"))


def _run(folder: Path, job: dict[str, Any], name: str) -> RunRecord:
    record = run(plan_here(folder, job, f"{name}.yaml"), folder / name, progress=Silent())
    assert record.status == "finished"
    return record


def test_what_lies_where_is_told(sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Silent, "notice", lambda _self, text: told.append(text))
    _run(sums, sums_job(sums, run=TIERS, train={"max_steps": 2}), "told")
    (line,) = [text for text in told if text.startswith("tiers:")]
    assert "0 B lie in host memory" not in line and "on flash" in line


def _losses(record: RunRecord) -> list[float | None]:
    return [line.loss for line in record.steps]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_job_file_alone_trains_over_tiers_as_in_memory(sums: Path, precision: str) -> None:
    """Same losses (fp32: 1e-4 after 20 steps), same evaluation, an ordinary Hugging Face folder at the end."""
    from transformers import AutoModelForCausalLM

    records = {}
    for placement in ("hbm", "tiers"):
        job = sums_job(sums, run={**TIERS, "placement": placement, "precision": precision}, eval={"every": 10})
        records[placement] = _run(sums, job, f"{placement}-{precision}")
    tolerance = 1e-4 if precision == "fp32" else 3e-2
    assert _losses(records["tiers"]) == pytest.approx(_losses(records["hbm"]), rel=tolerance)
    for ours, theirs in zip(records["tiers"].evals, records["hbm"].evals, strict=True):
        assert ours.metrics["loss"] == pytest.approx(theirs.metrics["loss"], rel=tolerance)
    folder = sums / f"tiers-{precision}" / "model"
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    assert all(p.isfinite().all() for p in model.parameters())
    header = records["tiers"].header["plan"]["candidates"][0]
    assert header["schedule"] is not None and header["planned_only"] == ""


def test_classes_with_a_pooled_head_train_over_tiers(sentiment: Path) -> None:
    records = {}
    for placement in ("hbm", "tiers"):
        job = sentiment_job(
            sentiment,
            model={
                **ELECTRA,
                "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": 0.0,
                "classifier_dropout": 0.0,
            },
            tune={"pooling": "mean"},
            run={**TIERS, "placement": placement, "precision": "fp32"},
        )
        records[placement] = _run(sentiment, job, f"pooled-{placement}")
    # from the first step on: the head starts from the same constants, of the encoder's untrained vectors
    assert _losses(records["tiers"]) == pytest.approx(_losses(records["hbm"]), rel=1e-3)
    assert records["tiers"].end["metrics"].keys() == records["hbm"].end["metrics"].keys()  # type: ignore[index]


def test_adapters_train_over_a_streamed_base(sums: Path) -> None:
    job = sums_job(sums, tune={"method": "lora", "rank": 4}, train={"lr": 0.01}, run={**TIERS, "loss": "chunked"})
    record = _run(sums, job, "lora")
    assert record.evals[-1].metrics["loss"] < record.steps[0].loss
    assert (sums / "lora" / "model" / "adapter_model.safetensors").is_file()


def test_an_interrupted_run_resumes_bit_for_bit(sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = sums_job(sums, run={**TIERS, "precision": "bf16"}, save={"every": 3}, eval={"every": 10})
    whole = _run(sums, job, "whole")
    train_step = Loop.train_step

    def stopping(self: Loop, batch: Any) -> None:
        train_step(self, batch)
        if self.progressed.step == 8:
            self.stop.reason = "test"

    monkeypatch.setattr(StopRequest, "requested", property(lambda self: bool(self.reason)), raising=False)
    monkeypatch.setattr(Loop, "train_step", stopping)
    first = run(plan_here(sums, job, "halves.yaml"), sums / "halves", progress=Silent())
    assert first.status == "interrupted"
    monkeypatch.undo()
    second = run(plan_here(sums, job, "halves.yaml"), sums / "halves", progress=Silent())
    assert second.status == "finished"
    assert _losses(second)[-5:] == _losses(whole)[-5:]
    one, two = (load_file(sums / name / "model" / "model.safetensors") for name in ("whole", "halves"))
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_what_tiers_cannot_run_is_refused_before_the_first_step(sums: Path) -> None:
    job = sums_job(sums, train={"optimizer": "lion"}, run=TIERS)
    with pytest.raises(RunError, match="ST467"):
        run(plan_here(sums, job, "lion.yaml"), sums / "lion", progress=Silent())


def test_a_checkpoint_of_the_other_engine_is_named(sums: Path) -> None:
    job = sums_job(sums, run={**TIERS, "precision": "fp32"}, train={"max_steps": 4})
    _run(sums, job, "changed")
    for file in (sums / "changed" / "record.jsonl",):
        file.unlink()
    job["run"] = {**job["run"], "placement": "hbm"}
    with pytest.raises(RunError, match="ST468"):
        run(plan_here(sums, job, "changed.yaml"), sums / "changed", progress=Silent())
