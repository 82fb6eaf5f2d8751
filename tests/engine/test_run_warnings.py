"""Proves what a run says about itself: a head that learned nothing, an absent label, parameters without gradient
(case 21), fp16 on a CPU with overflow (cases 24, 26), two runs in one folder."""

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_jobs import plan_here, sentiment_job, write_sentiment

from stoker.core.errors import RunError
from stoker.engine import build as build_module
from stoker.engine import loop as loop_module
from stoker.engine.checkpoint import RunLock
from stoker.engine.progress import Silent
from stoker.engine.run import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentiment(tmp_path_factory.mktemp("warnings"))


def codes(record: Any) -> set[str]:
    return {event.code for event in record.events}


def rewrite(folder: Path, name: str, change: Callable[[int, dict[str, str]], dict[str, str] | None]) -> None:
    """A copy of train.csv with `change` applied to each row; None leaves it out."""
    with (folder / "train.csv").open(encoding="utf-8") as stream:
        rows = [change(i, row) for i, row in enumerate(csv.DictReader(stream))]
    kept = [row for row in rows if row is not None]
    with (folder / name).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=kept[0].keys())
        writer.writeheader()
        writer.writerows(kept)


def test_a_head_that_learned_nothing_is_named(folder: Path) -> None:
    """One row in ten has the label, the learning rate is nil: the model says no to all."""
    rewrite(folder, "rare.csv", lambda i, row: {**row, "rare": str(int(i % 10 == 0))})
    job = sentiment_job(
        folder,
        data={"train": "rare.csv", "labels": ["rare"]},
        train={"lr": 1e-9, "epochs": 2.0},
        tune={"pooling": "mean"},
        run={"micro_batch_size": 16},
    )
    record = run(plan_here(folder, job), folder / "baseline", progress=Silent())
    assert record.evals[-1].metrics["f1_macro_at_half"] == 0.0
    assert [event.code for event in record.events].count("ST423") == 1  # said once, not at each evaluation


def test_a_label_absent_from_validation_is_named(folder: Path) -> None:
    def without_film(i: int, row: dict[str, str]) -> dict[str, str] | None:
        return {**row, "text": row["text"] + " it"} if row["film"] == "0" else None

    rewrite(folder, "valid.csv", without_film)
    job = sentiment_job(
        folder,
        data={"eval_frac": None, "eval": "valid.csv"},
        train={"epochs": 1.0},
        run={"micro_batch_size": 16},
    )
    record = run(plan_here(folder, job), folder / "absent", progress=Silent())
    named = [event.message for event in record.events if event.code == "ST424"]
    assert len(named) == 1 and "film" in named[0]


def test_parameters_without_gradient_are_named_after_the_first_backward(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = build_module.build_network

    def with_unused(*arguments: Any) -> Any:
        network, fresh, pooling = original(*arguments)
        network.unused = torch.nn.Linear(2, 2)
        return network, fresh, pooling

    monkeypatch.setattr(build_module, "build_network", with_unused)
    plan = plan_here(folder, sentiment_job(folder, train={"max_steps": 2}, run={"recompute": "full"}))
    record = run(plan, folder / "unused", progress=Silent())
    named = [event.message for event in record.events if event.code == "ST426"]
    assert len(named) == 1 and "unused.weight" in named[0] and record.status == "finished"


def test_fp16_keeps_what_learns_in_fp32_and_survives_an_overflow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_here(
        folder, sentiment_job(folder, train={"max_steps": 3}, run={"precision": "fp16_amp", "micro_batch_size": 16})
    )
    original = loop_module.Loop._accumulate
    seen: dict[str, Any] = {"calls": 0}

    def overflow_once(self: Any, batch: Any) -> torch.Tensor:
        loss = original(self, batch)
        trainable = [p for p in self.session.model.parameters() if p.requires_grad]
        seen["dtypes"] = {p.dtype for p in trainable}
        seen["calls"] += 1
        if seen["calls"] == 2:
            trainable[0].grad.fill_(float("inf"))
        return loss

    monkeypatch.setattr(loop_module.Loop, "_accumulate", overflow_once)
    record = run(plan, folder / "fp16", progress=Silent())
    assert record.status == "finished" and record.end is not None
    assert seen == {"calls": 4, "dtypes": {torch.float32}}  # three updates, one of them tried twice
    assert record.end["overflows"] == 1 and "ST421" in codes(record)
    assert [line.step for line in record.steps] == [1, 2, 3]


def test_a_small_update_survives_where_fp16_weights_would_drop_it() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    weight.grad = torch.full((1,), -4e-4)
    optimizer.step()
    assert float(weight.detach()) == pytest.approx(1.0 + 4e-4, abs=1e-7)
    assert float(torch.ones(1, dtype=torch.float16) + 4e-4) == 1.0  # fp16 spacing at 1 is 9.77e-4


def test_two_runs_in_one_folder_are_refused_with_pid_and_host(folder: Path) -> None:
    out = folder / "twice"
    with RunLock(out), pytest.raises(RunError, match="process") as caught:
        run(plan_here(folder, sentiment_job(folder)), out, progress=Silent())
    assert caught.value.code == "ST453"


def test_a_tracker_gets_the_numbers_and_a_missing_one_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    job = sentiment_job(folder, track=["tensorboard"], train={"max_steps": 2}, run={"micro_batch_size": 16})
    run(plan_here(folder, job), folder / "tracked", progress=Silent())
    assert list((folder / "tracked" / "tensorboard").glob("events.out.tfevents.*"))
    monkeypatch.setitem(sys.modules, "trackio", None)  # importing it fails, as where it is not installed
    job = sentiment_job(folder, track=["trackio"], train={"max_steps": 2})
    with pytest.raises(RunError, match="ST430"):
        run(plan_here(folder, job), folder / "untracked", progress=Silent())
