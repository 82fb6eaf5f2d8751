"""Proves that kill -9 at any moment of saving and pruning loses nothing: the newest complete checkpoint is found
without hands, every bit of it, and nothing that was reported saved is missing.

STOKER_KILLS sets the number of kills (default 40, a few seconds) and STOKER_KILL_SEED the first seed, so that
scripts/chaos can add up thousands by ranges of seeds.
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from checkpoint_doubles import FaultyStorage, same_files, training_files

from stoker.engine.checkpoint import (
    LocalStorage,
    RunLock,
    find_resume,
    prune,
    save_checkpoint,
)
from stoker.observe.writer import RecordWriter

KILLS = int(os.environ.get("STOKER_KILLS", "40"))
SEED = int(os.environ.get("STOKER_KILL_SEED", "0"))
_SIZE = 20_000

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


class CountingKiller(FaultyStorage):
    """Kills its own process just before the n-th call of any kind."""

    def _count(self, kind: str) -> None:
        self.calls.append(kind)
        if len(self.calls) == self.nth:
            os.kill(os.getpid(), signal.SIGKILL)


def _train(run_dir: Path, told: int, storage: LocalStorage, steps: int) -> None:
    """Resume, then save and prune step after step, telling each finished save through the pipe `told`."""
    with RunLock(run_dir) as lock:
        newest = find_resume(run_dir).newest
        first = newest.step + 1 if newest else 1
        for step in range(first, first + steps):
            save_checkpoint(
                run_dir, step, training_files(step, _SIZE), {"step": step}, storage=storage, before_commit=lock.check
            )
            os.write(told, step.to_bytes(4, "little"))
            prune(run_dir, 2, best_step=1, storage=storage)


def _fork(run_dir: Path, storage: LocalStorage, steps: int) -> tuple[int, int]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _train(run_dir, writer, storage, steps)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    return child, reader


def _told(reader: int) -> list[int]:
    """Steps that the child reported saved, read after it ended."""
    content = b""
    while chunk := os.read(reader, 65536):
        content += chunk
    os.close(reader)
    return [int.from_bytes(content[i : i + 4], "little") for i in range(0, len(content) // 4 * 4, 4)]


def _check(run_dir: Path, last_told: int) -> int:
    """The step to resume from, after proving that it is whole and not older than what was reported saved."""
    scan = find_resume(run_dir)
    assert not [bad for bad in scan.rejected if "cut short before" not in bad.reason], scan.rejected
    if scan.newest is None:
        assert last_told == 0
        return 0
    assert scan.newest.step >= last_told
    assert same_files({file: scan.newest.load(file) for file in scan.newest.files}, scan.newest.step, _SIZE)
    assert scan.newest.meta == {"step": scan.newest.step}
    return scan.newest.step


def test_kill_at_random_times(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    last = 0
    advanced = 0
    for _kill in range(KILLS):
        child, reader = _fork(tmp_path, LocalStorage(), 10_000)
        time.sleep(chance.uniform(0.0, 0.12))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        told = _told(reader)
        step = _check(tmp_path, max([last, *told]))
        advanced += step > last
        last = step
    assert last > 0 and advanced >= KILLS // 8, "the child hardly ever got to save: nothing was tested"


def test_kill_before_each_single_call_of_two_saves(tmp_path: Path) -> None:
    """Every file event of a save, a prune and the next save, one after the other, until a run gets through."""
    for nth in range(1, 200):
        run_dir = tmp_path / f"{nth}"
        save_checkpoint(run_dir, 1, training_files(1, _SIZE), {"step": 1})
        save_checkpoint(run_dir, 2, training_files(2, _SIZE), {"step": 2})
        child, reader = _fork(run_dir, CountingKiller(nth=nth), 2)
        _pid, status = os.waitpid(child, 0)
        step = _check(run_dir, max([2, *_told(reader)]))
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0 and step == 4
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        child, reader = _fork(run_dir, LocalStorage(), 1)  # and it goes on without hands
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert _told(reader) == [step + 1]
        assert _check(run_dir, step + 1) == step + 1
        left = sorted(path.name for path in (run_dir / "checkpoints").iterdir())
        assert left == sorted({"step-00000001", f"step-{step + 1:08d}"}), left
    assert nth > 30, "the kills did not reach through a whole save"


def test_the_record_survives_kills_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """A line is cut at a random byte, as a kill or a full disk cuts it; the next start goes on and all is read."""
    from stoker.core.record_io import read_record

    chance = random.Random(SEED)
    starts = 25
    for start in range(starts):
        with RecordWriter(tmp_path) as record:
            record.header({"run_id": "r", "start": start})
            record.event("mark", "whole", data={"start": start})
        if start == starts - 1:
            break
        line = b'{"kind": "event", "name": "mark", "message": "torn", "elapsed_s": 1.0, "data": {"n": 1}}\n'
        with (tmp_path / "record.jsonl").open("ab") as stream:
            stream.write(line[: chance.randrange(len(line) - 1)])
    record_read = read_record(tmp_path)
    marks = [event.data["start"] for event in record_read.events if event.name == "mark" and event.message == "whole"]
    assert marks == list(range(starts))
    assert sum(event.name == "resume" for event in record_read.events) == starts - 1
    assert record_read.header["start"] == 0
