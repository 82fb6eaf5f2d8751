"""Proves that one stoker works in a run folder at a time, a dead one holds nothing, and a late one is fenced."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stoker.core.errors import RunError
from stoker.engine.checkpoint import RunLock

_HOLD = (
    "import sys, time\n"
    "from stoker.engine.checkpoint.lock import RunLock\n"
    "lock = RunLock(sys.argv[1]).acquire()\n"
    "print(lock.number, flush=True)\n"
    "time.sleep(60)\n"
)


def _holder(run_dir: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", _HOLD, str(run_dir)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline().strip().isdigit()
    return process


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate(timeout=30)


def test_second_process_is_refused_naming_pid_and_host_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    process = _holder(tmp_path)
    try:
        with pytest.raises(RunError) as caught:
            RunLock(tmp_path).acquire()
        assert caught.value.code == "ST453" and caught.value.exit_code == 2
        assert str(process.pid) in caught.value.problem and socket.gethostname() in caught.value.problem
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(RunError, match="ST453"):  # a stopped one still holds it
            RunLock(tmp_path).acquire()
        process.send_signal(signal.SIGCONT)
    finally:
        _end(process)
    with RunLock(tmp_path) as lock:
        assert lock.number == 2
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()


def test_second_lock_in_one_process_is_refused_and_release_frees(tmp_path: Path) -> None:
    with RunLock(tmp_path / "new" / "run"), pytest.raises(RunError, match="ST453"):
        RunLock(tmp_path / "new" / "run").acquire()
    lock = RunLock(tmp_path / "new" / "run").acquire()
    assert lock.number == 2
    lock.release()
    lock.release()
    assert "pid" not in json.loads((tmp_path / "new" / "run" / ".lock").read_text())


def test_stale_or_torn_lock_files_do_not_matter(tmp_path: Path) -> None:
    for content in (b"", b"{", b"[1]", b"\xff", b'{"pid": 1, "host": "elsewhere", "number": "x"}', b'{"number": 41}'):
        (tmp_path / ".lock").write_bytes(content)
        with RunLock(tmp_path) as lock:
            assert lock.number == (42 if b"41" in content else 1)
            lock.check()


def test_one_that_was_overtaken_finds_out(tmp_path: Path) -> None:
    """Someone deleted the lock file of a stopped process and started anew."""
    late = RunLock(tmp_path).acquire()
    (tmp_path / ".lock").unlink()
    with RunLock(tmp_path) as taker:
        taker.check()
        with pytest.raises(RunError, match="ST456"):
            late.check()
    late.release()
    with pytest.raises(RunError, match="ST456"):
        late.check()


def test_forked_loaders_do_not_keep_the_lock_of_a_dead_parent(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\n"
        "from stoker.engine.checkpoint.lock import RunLock\n"
        "lock = RunLock(sys.argv[1]).acquire()\n"
        "child = os.fork()\n"
        "if child == 0: time.sleep(30); os._exit(0)\n"
        "print(child, flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        with pytest.raises(RunError, match="ST453"):
            RunLock(tmp_path).acquire()
        process.kill()
        process.wait(timeout=30)
        os.kill(child, 0)  # the loader lives on for a while
        RunLock(tmp_path).acquire().release()
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


@pytest.mark.parametrize("case", ["dead", "alive", "other host", "number reused"])
def test_without_kernel_locks_the_file_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    import fcntl

    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait(timeout=30)
    facts = {
        "dead": {"pid": finished.pid, "host": socket.gethostname(), "started": "2026-01-01T00:00:00+00:00"},
        "alive": {"pid": os.getpid(), "host": socket.gethostname(), "started": "2099-01-01T00:00:00+00:00"},
        "other host": {"pid": 1, "host": "elsewhere", "started": "2026-01-01T00:00:00+00:00"},
        "number reused": {"pid": os.getpid(), "host": socket.gethostname(), "started": "2001-01-01T00:00:00+00:00"},
    }[case]
    (tmp_path / ".lock").write_text(json.dumps(facts))
    if case in ("dead", "number reused"):
        RunLock(tmp_path).acquire().release()
    else:
        with pytest.raises(RunError, match="ST453"):
            RunLock(tmp_path).acquire()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file" / "run", Path("/proc/stoker-run")):
        with pytest.raises(RunError) as caught:
            RunLock(place).acquire()
        assert caught.value.code == "ST454" and "--out" in caught.value.fix


def test_of_many_at_once_exactly_one_gets_it(tmp_path: Path) -> None:
    won: list[RunLock] = []
    refused: list[str] = []
    start = threading.Barrier(8)

    def attempt() -> None:
        start.wait()
        try:
            won.append(RunLock(tmp_path).acquire())
        except RunError as error:
            refused.append(error.code)

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(won) == 1 and refused == ["ST453"] * 7
    won[0].release()
