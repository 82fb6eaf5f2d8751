"""Proves the same runs on one CUDA GPU: every number format learns, the device decides about NaN without the host,
a resume goes on, and the probe of the longest batch bounds what the run then reserves (case 8)."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_jobs import ELECTRA, digits_job, plan_here, sentiment_job, sums_job, write_digits, write_sentiment, write_sums

from stoker.core.errors import RunError
from stoker.engine import loop as loop_module
from stoker.engine.predict import predict
from stoker.engine.progress import Silent
from stoker.engine.run import run

pytestmark = pytest.mark.gpu
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU", allow_module_level=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu")
    write_sentiment(folder)
    return folder


LEARNING: dict[str, Any] = {"train": {"epochs": 8.0, "lr": 0.01}, "tune": {"pooling": "mean"}}


@pytest.mark.parametrize("precision", ["bf16", "bf16_amp", "fp16_amp", "fp32"])
def test_every_precision_learns(folder: Path, precision: str) -> None:
    job = sentiment_job(folder, **LEARNING, run={"precision": precision, "micro_batch_size": 8})
    record = run(plan_here(folder, job), folder / precision, progress=Silent())
    assert record.status == "finished" and record.end is not None
    assert record.end["metrics"]["f1_macro"] > 0.85
    assert record.header["hardware"]["kind"] == "cuda"
    assert record.end["peak_reserved_bytes"] >= record.end["peak_allocated_bytes"] > 0


def test_a_stop_and_resume_on_the_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_here(folder, sentiment_job(folder, run={"precision": "bf16", "micro_batch_size": 4}))
    whole = run(plan, folder / "whole", progress=Silent())
    original = loop_module.Loop.train_step

    def step_and_stop(self: Any, batch: Any) -> None:
        original(self, batch)
        if batch.step + 1 == 5:
            self.stop.request("SIGTERM")

    with monkeypatch.context() as patch:
        patch.setattr(loop_module.Loop, "train_step", step_and_stop)
        assert run(plan, folder / "parts", progress=Silent()).status == "interrupted"
    resumed = run(plan, folder / "parts", progress=Silent())
    assert [line.loss for line in resumed.steps] == pytest.approx([line.loss for line in whole.steps], rel=1e-3)


def test_nan_is_decided_on_the_device_and_named_by_its_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_here(folder, sentiment_job(folder, train={"epochs": 40.0}, run={"precision": "bf16_amp"}))
    original = loop_module.Loop._accumulate
    kept: dict[str, torch.Tensor] = {}

    def poison(self: Any, batch: Any) -> torch.Tensor:
        loss = original(self, batch)
        kept["model"] = self.session.model
        if batch.step == 5:
            kept["before"] = self.session.model.classifier.out_proj.weight.detach().clone()
            return loss * float("nan")
        return loss

    monkeypatch.setattr(loop_module.Loop, "_accumulate", poison)
    monkeypatch.setattr("stoker.engine.cadence.log_interval", lambda total: 7)
    with pytest.raises(RunError, match="step 6"):
        run(plan, folder / "nan", progress=Silent())
    assert torch.equal(kept["model"].classifier.out_proj.weight, kept["before"])  # type: ignore[attr-defined]


def test_language_model_and_images(folder: Path) -> None:
    write_sums(folder)
    job = sums_job(folder, tune={"method": "lora", "rank": 8}, run={"precision": "bf16", "loss": "chunked"})
    record = run(plan_here(folder, job), folder / "lm", progress=Silent())
    assert record.status == "finished" and record.evals[-1].metrics["loss"] < 3.0
    assert len(predict(folder / "lm", folder / "sums.jsonl", max_new_tokens=1)) == 200
    images = write_digits(folder / "digits")
    record = run(plan_here(images, digits_job(images)), images / "run", progress=Silent())
    assert record.end is not None and record.end["metrics"]["accuracy"] > 0.8


def test_the_probe_bounds_what_the_run_reserves(tmp_path: Path) -> None:
    folder = tmp_path  # a vocabulary of its own: the other tests write theirs into the shared folder
    write_sentiment(folder)
    model = dict(ELECTRA, hidden_size=256, intermediate_size=1024, num_attention_heads=4, max_position_embeddings=512)
    rows = ["text,good,film", *(f"{'a film was nice ' * (1 + i)},{i % 2},1" for i in range(60))]
    rows.append("the film " * 250 + ",1,0")
    (folder / "long.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    job = sentiment_job(
        folder,
        model=model,
        data={"train": "long.csv"},
        train={"seq_len": 512, "epochs": 2.0},
        run={"precision": "bf16"},
    )
    record = run(plan_here(folder, job), folder / "probe", progress=Silent())
    probe = next(event for event in record.events if event.name == "probe").data["reserved_bytes"]
    assert record.end is not None and record.end["peak_reserved_bytes"] <= 1.05 * probe
    phases = record.end["phase_peak_bytes"]
    assert phases["train"] <= 1.05 * phases["probe"]
