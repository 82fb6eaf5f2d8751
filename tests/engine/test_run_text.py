"""Proves text classification end to end on a CPU: it learns, exports what transformers loads, predicts with the
stored thresholds, resumes bitwise in mid-epoch, and does nothing when it has finished."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_jobs import ELECTRA, plan_here, sentiment_job, write_sentiment

from stoker.core.errors import RunError
from stoker.core.record import RunRecord
from stoker.engine import loop as loop_module
from stoker.engine.checkpoint import list_steps
from stoker.engine.predict import predict
from stoker.engine.progress import Silent
from stoker.engine.run import run

LEARNING: dict[str, Any] = {"train": {"epochs": 8.0, "lr": 0.01}, "tune": {"pooling": "mean"}}


class Listening(Silent):
    """Keeps the notices."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture(scope="module")
def sentiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentiment(tmp_path_factory.mktemp("sentiment"))


@pytest.fixture(scope="module")
def finished(sentiment: Path) -> tuple[Path, RunRecord, Listening]:
    watcher = Listening()
    plan = plan_here(sentiment, sentiment_job(sentiment, **LEARNING))
    out = sentiment / "finished"
    return out, run(plan, out, progress=watcher), watcher


def test_multi_label_learns(finished: tuple[Path, RunRecord, Listening]) -> None:
    _out, record, _watcher = finished
    assert record.status == "finished"
    assert record.end is not None and record.end["metrics"]["f1_macro"] > 0.9
    assert record.steps[-1].loss < 0.5 * record.steps[0].loss
    assert sum(line.samples for line in record.steps) == record.end["samples"] == 8 * 128


def test_the_paper_names_every_key_of_header_and_end(finished: tuple[Path, RunRecord, Listening]) -> None:
    """The other lines' keys are types, held against the paper in tests/unit/test_papers.py."""
    _out, record, _watcher = finished
    paper = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines()
    for kind, row in (("header", record.header), ("end", record.end or {})):
        described = next(line for line in paper if line.startswith(f"| `{kind}`"))
        assert [key for key in row if f"`{key}`" not in described and key != "kind"] == []


def test_the_effective_batch_is_told_before_training(finished: tuple[Path, RunRecord, Listening]) -> None:
    _out, _record, watcher = finished
    assert any("effective batch 16 = 4 a forward x 4 accumulated x 1" in text for text in watcher.notices)


def test_best_and_last_checkpoints_stay(finished: tuple[Path, RunRecord, Listening]) -> None:
    out, record, _watcher = finished
    best = max((line for line in record.evals), key=lambda line: (line.metrics["f1_macro"], -line.step)).step
    assert set(list_steps(out)) >= {best, record.steps[-1].step}
    assert len(list_steps(out)) == 2


def test_a_pooled_model_folder_loads_with_auto_model(finished: tuple[Path, RunRecord, Listening]) -> None:
    """The encoder is an ordinary folder; the head stands beside it, and predict puts them together."""
    from transformers import AutoModel

    out, _record, _watcher = finished
    encoder = AutoModel.from_pretrained(out / "model", local_files_only=True)
    saved = load_file(str(out / "model" / "model.safetensors"))
    assert torch.equal(encoder.embeddings.word_embeddings.weight, saved["embeddings.word_embeddings.weight"])
    assert set(load_file(str(out / "model" / "stoker_head.safetensors"))) == {"weight", "bias", "centre", "scale"}
    notes = json.loads((out / "model" / "stoker.json").read_text(encoding="utf-8"))
    assert notes["pooling"] == "mean" and notes["labels"] == ["good", "film"] and len(notes["thresholds"]) == 2


def test_an_ordinary_model_folder_predicts_the_same_in_transformers(unbroken: tuple[Path, RunRecord]) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from stoker.data.tokenizer import load_tokenizer

    folder = unbroken[0] / "model"
    model = AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True).eval()
    assert model.config.id2label == {0: "good", 1: "film"}
    assert model.config.problem_type == "multi_label_classification"
    text = "the film was great"
    inputs = AutoTokenizer.from_pretrained(folder, local_files_only=True)(text, return_tensors="pt")
    ours = load_tokenizer(folder)
    assert inputs["input_ids"][0].tolist() == next(iter(ours.encode([text], seq_len=32)))[0].ids
    assert ours.special_id("unk") not in inputs["input_ids"][0].tolist()
    with torch.no_grad():
        expected = model(**inputs).logits.sigmoid()[0].tolist()
    rows = unbroken[0] / "one.csv"
    rows.write_text(f"text\n{text}\n", encoding="utf-8")
    answer = predict(unbroken[0], rows)[0].probabilities or {}
    assert [answer["good"], answer["film"]] == pytest.approx(expected, abs=1e-6)


def test_predict_applies_probabilities_and_stored_thresholds(
    finished: tuple[Path, RunRecord, Listening], tmp_path: Path
) -> None:
    out, _record, _watcher = finished
    rows = tmp_path / "new.csv"
    rows.write_text("text\nthe day was great\nwe saw the awful film\nit was sad\n", encoding="utf-8")
    answers = predict(out, rows)
    assert [set(answer.labels or ()) for answer in answers] == [{"good"}, {"film"}, set()]
    assert [answer.row for answer in answers] == [2, 3, 4]
    assert all(0.0 <= p <= 1.0 for answer in answers for p in (answer.probabilities or {}).values())
    notes_file = out / "model" / "stoker.json"
    kept = notes_file.read_text(encoding="utf-8")
    try:
        notes_file.write_text(json.dumps({**json.loads(kept), "thresholds": [0.0, 1.1]}), encoding="utf-8")
        assert [answer.labels for answer in predict(out, rows)] == [("good",)] * 3
    finally:
        notes_file.write_text(kept, encoding="utf-8")


def test_the_same_command_after_the_end_does_nothing(
    finished: tuple[Path, RunRecord, Listening], sentiment: Path
) -> None:
    out, record, _watcher = finished
    before = (out / "record.jsonl").read_bytes()
    watcher = Listening()
    plan = plan_here(sentiment, sentiment_job(sentiment, **LEARNING))
    again = run(plan, out, progress=watcher)
    assert again.end == record.end and (out / "record.jsonl").read_bytes() == before
    assert any("finished already" in text for text in watcher.notices)


def test_a_run_folder_of_another_job_is_refused(finished: tuple[Path, RunRecord, Listening], sentiment: Path) -> None:
    out, _record, _watcher = finished
    plan = plan_here(sentiment, sentiment_job(sentiment, **LEARNING, problem="multi_label"), "other.yaml")
    plan = replace(plan, job=replace(plan.job, train=replace(plan.job.train, lr=0.02)))
    with pytest.raises(RunError, match="ST403"):
        run(plan, out, progress=Silent())


class _StopAfter:
    """Makes the loop's stop request true after a number of steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
        original = loop_module.Loop.train_step

        def step_and_stop(self: Any, batch: Any) -> None:
            original(self, batch)
            if batch.step + 1 == steps:
                self.stop.request("SIGTERM")

        monkeypatch.setattr(loop_module.Loop, "train_step", step_and_stop)


@pytest.fixture(scope="module")
def unbroken(sentiment: Path) -> tuple[Path, RunRecord]:
    """Two epochs of 8 steps, accumulation 4, dropout on, the architecture's own head."""
    out = sentiment / "whole"
    return out, run(plan_here(sentiment, sentiment_job(sentiment), "whole.yaml"), out, progress=Silent())


@pytest.mark.parametrize("stop_at", [5, 8, 11])
def test_resume_is_bitwise(
    sentiment: Path, unbroken: tuple[Path, RunRecord], monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    """Stopped inside the first epoch, at its end and in the second: weights, state and losses equal (case 11)."""
    plan = plan_here(sentiment, sentiment_job(sentiment), "whole.yaml")
    whole, parts = unbroken[0], sentiment / f"parts-{stop_at}"
    with monkeypatch.context() as patch:
        _StopAfter(patch, stop_at)
        first = run(plan, parts, progress=Silent())
    assert first.status == "interrupted" and first.end is not None and first.end["steps"] == stop_at
    assert max(list_steps(parts)) == stop_at
    resumed = run(plan, parts, progress=Silent())
    assert resumed.status == "finished"
    last = max(list_steps(whole))
    for file in ("model", "optimizer"):
        name = f"checkpoints/step-{last:08d}/{file}.safetensors"
        one, two = load_file(str(whole / name)), load_file(str(parts / name))
        assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)
    assert [line.loss for line in resumed.steps] == [line.loss for line in unbroken[1].steps]
    assert [line.lr for line in resumed.steps] == [line.lr for line in unbroken[1].steps]


def test_nan_loss_stops_within_the_step_and_keeps_the_last_checkpoint(
    sentiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_here(sentiment, sentiment_job(sentiment, save={"every": 3}))
    out = sentiment / "nan"
    original = loop_module.Loop._accumulate
    weights: list[torch.Tensor] = []

    def poison(self: Any, batch: Any) -> torch.Tensor:
        loss = original(self, batch)
        if batch.step == 4:
            weights.append(self.session.model.classifier.out_proj.weight.detach().clone())
            poison.model = self.session.model  # type: ignore[attr-defined]
            return loss * float("nan")
        return loss

    monkeypatch.setattr(loop_module.Loop, "_accumulate", poison)
    with pytest.raises(RunError, match="step 5") as caught:
        run(plan, out, progress=Silent())
    assert caught.value.code == "ST420" and "0.003" in caught.value.fix
    assert torch.equal(poison.model.classifier.out_proj.weight, weights[0])  # type: ignore[attr-defined]
    from stoker.core.record_io import read_record

    record = read_record(out)
    assert record.status == "failed" and record.end is not None and record.end["code"] == "ST420"
    assert list_steps(out) == (3,)


def test_single_label_with_class_weights_and_early_stop(sentiment: Path) -> None:
    job = sentiment_job(
        sentiment,
        problem="single_label",
        data={"labels": "label"},
        train={"epochs": 30.0, "lr": 0.01, "class_weights": "balanced", "early_stop": 4},
        run={"micro_batch_size": 16},
        tune={"pooling": "mean"},
    )
    out = sentiment / "single"
    record = run(plan_here(sentiment, job), out, progress=Silent())
    assert record.status == "finished" and record.end is not None
    assert record.end["metrics"]["accuracy"] > 0.9
    assert record.end["steps"] < 30 * 8 and any(event.name == "early_stop" for event in record.events)
    rows = sentiment / "rows.jsonl"
    rows.write_text('{"text": "a very happy day"}\n{"text": "a poor book"}\n', encoding="utf-8")
    assert [answer.labels for answer in predict(out, rows)] == [("good",), ("bad",)]


@pytest.mark.parametrize("pooling", ["auto", "mean"])
def test_lora_saves_a_peft_folder_and_merge_an_ordinary_one(sentiment: Path, pooling: str) -> None:
    from transformers import AutoModel, AutoModelForSequenceClassification

    answers: list[Any] = []
    for merge in (False, True):
        job = sentiment_job(
            sentiment,
            model=dict(ELECTRA, initializer_range=0.2),
            tune={"method": "lora", "rank": 4, "merge": merge, "pooling": pooling},
            train={"epochs": 4.0, "lr": 0.01},
            run={"micro_batch_size": 16},
        )
        out = sentiment / f"lora-{merge}-{pooling}"
        record = run(plan_here(sentiment, job), out, progress=Silent())
        assert record.steps[-1].loss < record.steps[0].loss
        assert record.header["num_trainable_params"] < record.header["num_params"]
        assert ("adapter_config.json" in {path.name for path in (out / "model").iterdir()}) is not merge
        if merge:
            kind = AutoModel if pooling == "mean" else AutoModelForSequenceClassification
            kind.from_pretrained(out / "model", local_files_only=True)
        rows = sentiment / "one.csv"
        rows.write_text("text\nthe day was great\n", encoding="utf-8")
        answers.append(predict(out, rows)[0].probabilities or {})
    assert answers[0] == pytest.approx(answers[1], abs=1e-5)  # the adapter on its base is the merged model
