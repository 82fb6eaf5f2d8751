"""Proves that a record is written line by line, survives kills and full disks, and reads back exactly."""

import errno
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from stoker.core.errors import RecordError, RunError
from stoker.core.record import EvalLine, SaveLine, StepLine
from stoker.core.record_io import read_record
from stoker.observe.writer import RecordWriter


class Clock:
    """A clock that the test moves."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def step_line(step: int, **changes: Any) -> StepLine:
    facts: dict[str, Any] = {
        "step": step, "epoch": step / 10, "loss": 1.0 / 3.0, "lr": 2e-5, "grad_norm": 0.5, "samples": 32,
        "tokens": 500, "padded_tokens": 600, "elapsed_s": float(step), "step_s": 0.1, "data_wait_s": 0.0,
        "allocated_bytes": None, "reserved_bytes": 1 << 40,
    }  # fmt: skip
    return StepLine(**{**facts, **changes})


def test_every_kind_reads_back_exactly(tmp_path: Path) -> None:
    clock = Clock()
    with RecordWriter(tmp_path, clock=clock) as record:
        record.header({"run_id": "r1", "job": {"name": "한국어"}})
        clock.now += 2.5
        record.append(step_line(1))
        record.append(EvalLine(step=1, epoch=0.1, metrics={"f1": 0.25}, elapsed_s=2.5, eval_s=0.5, is_best=True))
        record.append(SaveLine(step=1, path="checkpoints/step-00000001", save_s=0.1, num_bytes=10, elapsed_s=2.5))
        record.event("note", "a\nb", code="ST451", data={"free": 1})
        record.end("finished", {"best_step": 1})
    read = read_record(tmp_path)
    assert read.header["run_id"] == "r1" and read.header["job"] == {"name": "한국어"}
    assert read.steps == (step_line(1),) and read.evals[0].metrics == {"f1": 0.25} and read.saves[0].num_bytes == 10
    assert (read.events[0].message, read.events[0].code, read.events[0].elapsed_s) == ("a\nb", "ST451", 2.5)
    assert read.status == "finished" and read.end is not None and read.end["best_step"] == 1
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "record.jsonl").read_text().splitlines()]
    assert kinds == ["header", "step", "eval", "save", "event", "end"]


def test_each_line_is_one_write(tmp_path: Path) -> None:
    writes: list[bytes] = []

    def write(descriptor: int, data: bytes) -> int:
        writes.append(bytes(data))
        return os.write(descriptor, data)

    with RecordWriter(tmp_path, write=write) as record:
        record.header({})
        record.append(step_line(1))
    assert len(writes) == 2 and all(data.endswith(b"\n") and data.count(b"\n") == 1 for data in writes)


def test_resume_adds_an_event_and_time_goes_on(tmp_path: Path) -> None:
    clock = Clock()
    with RecordWriter(tmp_path, clock=clock) as record:
        record.header({"run_id": "r1"})
        clock.now += 60.0
        record.end("interrupted")
    with RecordWriter(tmp_path, clock=Clock(5.0)) as record:
        assert record.elapsed_s == 60.0
        record.header({"run_id": "r1", "step": 7})
        assert read_record(tmp_path).status == "running", "a run that goes on has not ended"
        record.append(step_line(8))
        record.append(step_line(8, loss=0.5))
    read = read_record(tmp_path)
    assert [event.name for event in read.events] == ["resume"] and read.events[0].data["step"] == 7
    assert read.events[0].elapsed_s == 60.0
    assert [step.loss for step in read.steps] == [0.5], "the later line of a step wins"
    text = (tmp_path / "record.jsonl").read_text()
    assert text.count('"kind": "header"') == 1


def test_torn_header_is_written_again(tmp_path: Path) -> None:
    (tmp_path / "record.jsonl").write_text('{"kind": "header", "schema_v')
    with RecordWriter(tmp_path) as record:
        record.header({"run_id": "r1"})
        record.end("finished")
    assert read_record(tmp_path).header["run_id"] == "r1"


def test_zeros_that_a_power_cut_leaves_are_passed_over(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as record:
        record.header({})
        record.append(step_line(1))
    with (tmp_path / "record.jsonl").open("ab") as stream:
        stream.write(b"\0" * 5000)
    with RecordWriter(tmp_path) as record:
        assert record.elapsed_s >= 1.0
        record.header({})
        record.append(step_line(2))
    assert [step.step for step in read_record(tmp_path).steps] == [1, 2]


def test_a_bad_line_in_the_middle_is_still_an_error_with_its_place(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as record:
        record.header({})
    with (tmp_path / "record.jsonl").open("a") as stream:
        stream.write("{broken\n")
    with RecordWriter(tmp_path) as record:
        record.append(step_line(1))
    with pytest.raises(RecordError, match=r"ST602.*record\.jsonl:2"):
        read_record(tmp_path)


def test_not_a_number_survives_as_such(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as record:
        record.header({})
        record.append(step_line(1, grad_norm=math.inf, loss=math.nan))
        record.append(EvalLine(step=1, epoch=0.1, metrics={"f1": math.nan}, elapsed_s=1.0, eval_s=0.5, is_best=False))
    assert "NaN" not in (tmp_path / "record.jsonl").read_text()
    read = read_record(tmp_path)
    assert math.isnan(read.steps[0].loss) and math.isnan(read.steps[0].grad_norm)
    assert read.steps[0].cost_usd is None and math.isnan(read.evals[0].metrics["f1"])


def test_full_disk_is_told_once_and_never_silently(tmp_path: Path) -> None:
    full = False

    def write(descriptor: int, data: bytes) -> int:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(descriptor, data)

    with RecordWriter(tmp_path, write=write) as record:
        record.header({})
        full = True
        with pytest.raises(RunError) as caught:
            record.append(step_line(1))
        assert caught.value.code == "ST455" and str(tmp_path) in caught.value.place
        record.append(step_line(2))  # the way out is not cut short
        assert record.dropped_lines == 2
        full = False
        record.end("failed")
    assert read_record(tmp_path).status == "failed"


def test_a_line_cut_by_a_full_disk_is_left_behind_when_it_goes_on(tmp_path: Path) -> None:
    """The disk takes half a line, then nothing; the run stops, and is started again."""
    room = [10_000]

    def write(descriptor: int, data: bytes) -> int:
        if room[0] == 0:
            raise OSError(errno.ENOSPC, "full")
        part = data[: room[0]]
        room[0] -= len(part)
        return os.write(descriptor, part)

    record = RecordWriter(tmp_path, write=write)
    record.header({})
    room[0] = 40
    with pytest.raises(RunError, match="ST455"):
        record.append(step_line(1))
    record.close()
    record.close()
    with RecordWriter(tmp_path) as again:
        again.header({})
        again.append(step_line(1))
    assert [step.step for step in read_record(tmp_path).steps] == [1]


def test_short_writes_are_completed(tmp_path: Path) -> None:
    with RecordWriter(tmp_path, write=lambda descriptor, data: os.write(descriptor, data[:7])) as record:
        record.header({"run_id": "r1"})
        record.append(step_line(3))
    assert read_record(tmp_path).steps == (step_line(3),)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="ST455"):
        RecordWriter(tmp_path / "missing")
