"""Proves what the second start of a run meets: another job's folder (named key by key), a damaged record, plan or best
checkpoint, a stop in the last evaluation or while testing. Never a dead end, never another result than unbroken."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_jobs import plan_here, sentiment_job, write_sentiment

from stoker.core.errors import RunError
from stoker.core.plan import Plan
from stoker.core.record_io import read_record
from stoker.engine import evaluate as evaluate_module
from stoker.engine.checkpoint import list_steps
from stoker.engine.progress import Silent
from stoker.engine.run import run

SHORT: dict[str, Any] = {
    "train": {"max_steps": 6, "global_batch_size": 16},
    "run": {"micro_batch_size": 16},
    "eval": {"every": 2},
    "save": {"every": 1},
}


class Listening(Silent):
    """Keeps the notices."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentiment(tmp_path_factory.mktemp("again"), rows=80)


@pytest.fixture(scope="module")
def plan(folder: Path) -> Plan:
    shutil.copyfile(folder / "train.csv", folder / "test.csv")
    return plan_here(folder, sentiment_job(folder, **SHORT, data={"test": "test.csv"}))


@pytest.fixture(scope="module")
def whole(folder: Path, plan: Plan) -> Path:
    out = folder / "whole"
    assert run(plan, out, progress=Silent()).status == "finished"
    return out


@pytest.fixture
def unfinished(whole: Path, tmp_path: Path) -> Path:
    """The whole run without its model and its end: as if killed during the export."""
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    shutil.rmtree(out / "model")
    lines = (out / "record.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (out / "record.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")
    return out


def model_files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "model").iterdir()}


def test_a_folder_of_another_job_is_refused_by_the_keys_that_differ(plan: Plan, whole: Path) -> None:
    other = replace(plan.job, train=replace(plan.job.train, lr=0.02, seed=7))
    with pytest.raises(RunError, match="ST403") as caught:
        run(replace(plan, job=other), whole, progress=Silent())
    assert "train.lr: 0.003 -> 0.02" in caught.value.problem and "train.seed: 0 -> 7" in caught.value.problem
    assert "epochs" not in caught.value.problem


def test_the_checkpoints_name_what_differs_where_the_record_is_gone(plan: Plan, unfinished: Path) -> None:
    (unfinished / "record.jsonl").unlink()
    other = replace(plan.job, train=replace(plan.job.train, lr=0.02))
    with pytest.raises(RunError, match=r"train\.lr: 0\.003 -> 0\.02"):
        run(replace(plan, job=other), unfinished, progress=Silent())


def test_what_does_not_change_learning_may_change(plan: Plan, unfinished: Path, whole: Path) -> None:
    other = replace(plan.job, save=replace(plan.job.save, keep=5), goal=replace(plan.job.goal, currency="KRW"))
    assert run(replace(plan, job=other), unfinished, progress=Silent()).status == "finished"
    assert model_files(unfinished) == model_files(whole)


def test_data_counts_by_content_and_not_by_path(plan: Plan, folder: Path, unfinished: Path, tmp_path: Path) -> None:
    """Moved rows go on; one relabelled row of as many rows is another job."""
    for name in ("train.csv", "test.csv"):
        shutil.copyfile(folder / name, tmp_path / name)
    data = replace(plan.job.data, train=str(tmp_path / "train.csv"), test=str(tmp_path / "test.csv"))
    moved = replace(plan, job=replace(plan.job, data=data))
    assert run(moved, unfinished, progress=Silent()).status == "finished"
    text = (tmp_path / "train.csv").read_text(encoding="utf-8").rstrip("\n")
    flipped = text[:-1] + ("1" if text[-1] == "0" else "0")
    (tmp_path / "train.csv").write_text(flipped + "\n", encoding="utf-8")
    with pytest.raises(RunError, match=r"data\.train"):
        run(moved, unfinished, progress=Silent())


@pytest.mark.parametrize("content", [b"", b'{"kind": "hea', b"\0" * 512])
def test_a_record_killed_in_its_first_line_is_gone_on_with(plan: Plan, unfinished: Path, content: bytes) -> None:
    (unfinished / "record.jsonl").write_bytes(content)
    assert run(plan, unfinished, progress=Silent()).status == "finished"
    assert not list(unfinished.glob("record.damaged*"))


def test_a_record_damaged_in_the_middle_is_set_aside(plan: Plan, unfinished: Path, whole: Path) -> None:
    lines = (unfinished / "record.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    lines[4] = lines[4][:30] + "\n"
    (unfinished / "record.jsonl").write_text("".join(lines), encoding="utf-8")
    watcher = Listening()
    assert run(plan, unfinished, progress=watcher).status == "finished"
    assert any(text.startswith("[ST431]") and "record.damaged-1.jsonl" in text for text in watcher.notices)
    assert (unfinished / "record.damaged-1.jsonl").read_text(encoding="utf-8") == "".join(lines)
    assert model_files(unfinished) == model_files(whole)


def test_a_lost_best_checkpoint_gives_the_last_model_with_its_own_numbers(plan: Plan, unfinished: Path) -> None:
    record = read_record(unfinished)
    last = record.evals[-1]
    best = max(record.evals, key=lambda line: (line.metrics["f1_macro"], -line.step)).step
    assert best != last.step, "the fixture must have an earlier best"
    shutil.rmtree(unfinished / "checkpoints" / f"step-{best:08d}")
    watcher = Listening()
    again = run(plan, unfinished, progress=watcher)
    assert again.status == "finished" and any("[ST432]" in text for text in watcher.notices)
    notes = json.loads((unfinished / "model" / "stoker.json").read_text(encoding="utf-8"))
    assert notes["step"] == last.step and notes["metrics"]["f1_macro"] == last.metrics["f1_macro"]
    assert notes["thresholds"] == [last.labels[name]["threshold"] for name in ("good", "film")]


@pytest.fixture(params=["an evaluation in the middle", "the last evaluation", "the test"])
def stop_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A SIGTERM inside the n-th scoring of a split; [number of scorings so far]."""
    import os
    import signal

    nth = {"an evaluation in the middle": 2, "the last evaluation": 3, "the test": 4}[request.param]
    scorings = [0]
    original = evaluate_module.Evaluator.__call__

    def counted(self: Any, batches: Any, **options: Any) -> Any:
        scorings[0] += 1
        if scorings[0] == nth:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, batches, **options)

    monkeypatch.setattr(evaluate_module.Evaluator, "__call__", counted)
    yield scorings


def test_a_stop_while_scoring_ends_interrupted_and_resumes_to_the_same_model(
    plan: Plan, whole: Path, tmp_path: Path, stop_at: list[int]
) -> None:
    out = tmp_path / "stopped"
    first = run(plan, out, progress=Silent())
    assert first.status == "interrupted" and not (out / "model").exists()
    assert max(list_steps(out)) == (first.end or {})["steps"]
    assert run(plan, out, progress=Silent()).status == "finished"
    assert model_files(out) == model_files(whole)


def test_an_adapter_folder_has_the_same_bytes_in_every_process(folder: Path, tmp_path: Path) -> None:
    """peft writes a set of module names, in an order that hangs on the process's string hashes."""
    job = sentiment_job(folder, **SHORT, tune={"method": "lora", "rank": 2})
    run(plan_here(folder, job, "lora.yaml"), tmp_path / "lora", progress=Silent())
    settings = json.loads((tmp_path / "lora" / "model" / "adapter_config.json").read_text(encoding="utf-8"))
    assert len(settings["target_modules"]) > 1 and settings["target_modules"] == sorted(settings["target_modules"])


def test_an_earlier_pick_is_kept_when_the_search_would_pick_anew(plan: Plan, whole: Path, tmp_path: Path) -> None:
    """Another micro-batch in the middle of a run would change the draws of dropout."""
    from stoker.cli.run import _as_begun
    from stoker.core.plan_io import write_plan

    assert plan.picked is not None
    write_plan(plan, tmp_path / "plan.json")
    now = replace(plan.picked, run_config=replace(plan.picked.run_config, micro_batch_size=8))
    today = replace(plan, candidates=(now,), pick=now.rank)
    begun = _as_begun(today, tmp_path)
    assert begun.picked is not None and begun.picked.run_config == plan.picked.run_config
    pinned = replace(today, job=replace(today.job, run=replace(today.job.run, micro_batch_size=8)))
    asked = _as_begun(pinned, tmp_path).picked
    assert asked is not None and asked.run_config.micro_batch_size == 8
    (tmp_path / "plan.json").write_text('{"schema_version": 1, ', encoding="utf-8")
    assert _as_begun(today, tmp_path) == today and not (tmp_path / "plan.json").exists()


@pytest.mark.parametrize("error", ["OSError", "SafetensorError"])
def test_a_disk_full_at_the_export_is_told_and_the_same_run_exports_again(
    plan: Plan, unfinished: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    """safetensors has an error of its own for a full disk."""
    from safetensors import SafetensorError

    from stoker.engine import export

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device") if error == "OSError" else SafetensorError("No space left")

    with monkeypatch.context() as patch, pytest.raises(RunError, match=r"ST459.*No space left"):
        patch.setattr(export, "_save_network", full)
        run(plan, unfinished, progress=Silent())
    assert not (unfinished / "model").exists() and not (unfinished / ".model.new").exists()
    assert read_record(unfinished).status == "failed"
    assert run(plan, unfinished, progress=Silent()).status == "finished"
    assert model_files(unfinished) == model_files(whole)
