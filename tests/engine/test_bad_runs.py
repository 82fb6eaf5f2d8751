"""Bad input that only a run can meet, through the command: exit 2, a message with code, place and remedy, no traceback.

NaN loss, a folder that cannot be written, a full disk, another job's folder, a second run in the same folder.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_jobs import sentiment_job, write_sentiment

from stoker.cli.main import main
from stoker.core.record_io import read_record
from stoker.engine.checkpoint import FreeSpace, LocalStorage, RunLock


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentiment(tmp_path_factory.mktemp("bad"))


def run_command(
    folder: Path, out: Path, capsys: pytest.CaptureFixture[str], *overrides: str, **sections: Any
) -> tuple[int, str]:
    """(exit code, stderr) of `stoker run` over a job of two steps."""
    sections.setdefault("train", {})["max_steps"] = 2
    job = sentiment_job(folder, run={"micro_batch_size": 16}, **sections)
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump({**job, "hardware": {"here": True}}, sort_keys=False), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["run", str(file), "--out", str(out), *overrides])
    return int(ended.value.code or 0), capsys.readouterr().err


def refused(answer: tuple[int, str], code: str, *parts: str) -> None:
    exit_code, said = answer
    assert exit_code == 2 and f"error [{code}]" in said and "\n  -> " in said and "Traceback" not in said, said
    assert all(part in said for part in parts), said


def test_a_loss_that_is_no_number(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A learning rate that no model survives; the record says failed, and why."""
    train = {"lr": 100.0, "warmup_frac": 0.0, "max_grad_norm": 0.0, "optimizer": "sgd", "class_weights": "balanced"}
    model = {**sentiment_job(folder)["model"], "initializer_range": 1e20}
    answer = run_command(folder, folder / "nan", capsys, train=train, model=model)
    refused(answer, "ST420", "step 1", "train.lr")
    record = read_record(folder / "nan")
    assert record.status == "failed" and record.end is not None and record.end["code"] == "ST420"


def test_a_folder_that_cannot_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file stands where the folder should be: true for root too, unlike a read-only mode."""
    (folder / "file").write_text("", encoding="utf-8")
    refused(run_command(folder, folder / "file" / "run", capsys), "ST401", str(folder / "file" / "run"), "--out")


def test_a_full_disk_is_told_before_step_1(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 14: the mount of the run folder is named, and no step is taken."""
    mount = FreeSpace(free_bytes=100_000, block_bytes=4096, inodes=None, mount="/full")
    monkeypatch.setattr(LocalStorage, "free_space", lambda self, path: mount)
    refused(run_command(folder, folder / "full", capsys), "ST450", "/full")
    record = read_record(folder / "full")
    assert record.status == "failed" and not record.steps


def test_a_run_folder_of_another_job(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "first"
    assert run_command(folder, out, capsys)[0] == 0
    before = (out / "record.jsonl").read_bytes()
    refused(run_command(folder, out, capsys, "--set", "train.lr=0.5"), "ST403", str(out), "--out")
    assert (out / "record.jsonl").read_bytes() == before


def test_two_runs_in_one_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "twice"
    with RunLock(out):
        refused(run_command(folder, out, capsys), "ST453", str(out))
    assert run_command(folder, out, capsys)[0] == 0
