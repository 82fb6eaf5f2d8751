"""Proves that the first signal asks, the second leaves with 130, and that handlers come back as they were.

Signals to this process are raised in this thread: the kernel may hand a killed one to another thread, and the handler
then runs a moment later.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from stoker.engine.stopping import StopRequest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")


@pytest.mark.parametrize(
    ("number", "preempted"), [(signal.SIGTERM, True), (signal.SIGHUP, True), (signal.SIGINT, False)]
)
def test_first_signal_is_a_request_with_its_reason(number: signal.Signals, preempted: bool) -> None:
    left: list[int] = []
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    with StopRequest(leave=left.append) as stop:
        assert not stop.requested and stop.reason == ""
        signal.raise_signal(number)
        assert stop.requested and stop.reason == number.name and stop.preempted is preempted
        assert left == []
        signal.raise_signal(number)
        assert left == [130]
    assert {n: signal.getsignal(n) for n in before} == before


def test_a_launcher_forwarding_another_signal_at_once_is_the_same_wish() -> None:
    left: list[int] = []
    now = [100.0]
    with StopRequest(leave=left.append, clock=lambda: now[0]) as stop:
        signal.raise_signal(signal.SIGINT)
        now[0] += 0.3
        signal.raise_signal(signal.SIGTERM)
        assert left == [] and stop.reason == "SIGINT"
        now[0] += 5.0
        signal.raise_signal(signal.SIGTERM)
        assert left == [130]


def test_second_ctrl_c_ends_a_busy_process_at_once_with_130() -> None:
    code = (
        "import time\n"
        "from stoker.engine.stopping import StopRequest\n"
        "with StopRequest() as stop:\n"
        "    print('ready', flush=True)\n"
        "    while not stop.requested: time.sleep(0.01)\n"
        "    print('saving', flush=True)\n"
        "    try: time.sleep(60)\n"
        "    finally: print('never', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "saving\n"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert time.monotonic() - started < 5.0
    assert process.stdout.read() == ""
    process.stdout.close()


def test_nohup_keeps_a_closed_terminal_ignored() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.requested
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


def test_outside_the_main_thread_only_the_program_can_ask() -> None:
    seen: list[Any] = []
    before = signal.getsignal(signal.SIGTERM)

    def work() -> None:
        with StopRequest() as stop:
            seen.append(signal.getsignal(signal.SIGTERM) is before)
            stop.request("deadline")
            stop.request("later")
            seen.append((stop.requested, stop.reason, stop.preempted))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert seen == [True, (True, "deadline", False)]


def test_handlers_come_back_after_an_exception() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError), StopRequest():
        raise RuntimeError
    assert signal.getsignal(signal.SIGINT) is before


def test_a_forked_loader_dies_by_sigterm_and_ignores_ctrl_c() -> None:
    with StopRequest() as stop:
        child = os.fork()
        if child == 0:
            while True:
                time.sleep(0.05)
        time.sleep(0.1)
        os.kill(child, signal.SIGINT)
        time.sleep(0.1)
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 143
        assert not stop.requested
