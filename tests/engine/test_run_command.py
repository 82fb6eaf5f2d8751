"""Proves the commands: `run` prints its answer as JSON and resumes after a real SIGTERM with exit 0; `predict` writes
csv and jsonl; bad input exits 2 with a code and no traceback."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_jobs import sentiment_job, write_sentiment

from stoker.core.record_io import read_record


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentiment(tmp_path_factory.mktemp("command"))


def write_job(folder: Path, name: str, **sections: Any) -> Path:
    file = folder / name
    file.write_text(yaml.safe_dump(sentiment_job(folder, **sections), sort_keys=False), encoding="utf-8")
    return file


def stoker(*arguments: str, folder: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.Popen(
        [sys.executable, "-m", "stoker", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment,
    )  # fmt: skip


def test_sigterm_saves_and_exits_0_and_the_same_command_finishes(folder: Path) -> None:
    job = write_job(folder, "long.yaml", train={"epochs": 60.0}, eval={"every": 10000}, save={"every": 10000})
    arguments = ("run", str(job), "--out", str(folder / "run"), "--json")
    process = stoker(*arguments, folder=folder)
    record_file = folder / "run" / "record.jsonl"
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        if record_file.is_file() and '"kind": "step"' in record_file.read_text(encoding="utf-8"):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out)["status"] == "interrupted"
    stopped = read_record(folder / "run")
    assert stopped.end is not None and stopped.end["reason"] == "SIGTERM" and 0 < stopped.end["steps"] < 480
    process = stoker(*arguments, folder=folder)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    answer = json.loads(out)
    assert answer["status"] == "finished" and answer["steps"] == 480
    assert f"resuming after step {stopped.end['steps']}" in err
    assert sum(line.samples for line in read_record(folder / "run").steps) == 60 * 128


def test_predict_writes_what_was_asked(folder: Path) -> None:
    job = write_job(folder, "short.yaml", train={"max_steps": 3}, run={"micro_batch_size": 16})
    process = stoker("run", str(job), "--out", str(folder / "short"), folder=folder)
    _out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert {"job.yaml", "plan.json", "record.jsonl", "model", "checkpoints"} <= {
        path.name for path in (folder / "short").iterdir()
    }
    rows = folder / "new.tsv"
    rows.write_text("text\nthe film was great\nit was sad\n", encoding="utf-8")
    process = stoker("predict", str(folder / "short"), str(rows), "-o", str(folder / "answers.jsonl"), folder=folder)
    assert process.communicate(timeout=120)[0] == "" and process.returncode == 0
    lines = [json.loads(line) for line in (folder / "answers.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["row"] for line in lines] == [2, 3] and set(lines[0]["probabilities"]) == {"good", "film"}
    process = stoker("predict", str(folder / "short"), str(rows), folder=folder)
    assert process.communicate(timeout=120)[0].splitlines()[0] == "row,labels,good,film"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("predict", "nowhere", "new.tsv"), "ST440"),
        (("run", "missing.yaml"), "ST005"),
        (("run", "short.yaml", "--set", "model=nosuch/model"), "ST2"),
    ],
)
def test_bad_input_exits_2_with_a_code(folder: Path, arguments: tuple[str, ...], code: str) -> None:
    write_job(folder, "short.yaml", train={"max_steps": 3})
    process = stoker(*arguments, folder=folder)
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and f"[{code}" in err and "Traceback" not in err
