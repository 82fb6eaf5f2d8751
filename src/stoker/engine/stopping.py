"""Signals to a running job: the first asks it to save and stop, the second stops it at once.

SIGTERM (a cloud's preemption notice, a batch system), SIGINT (Ctrl-C) and SIGHUP (a closed terminal) count; a SIGHUP
that was ignored at the start (nohup) stays ignored. The loop looks at `requested` between steps.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

EXIT_AT_ONCE = 130  # 128 + SIGINT, as shells count
EXIT_CHILD = 143  # 128 + SIGTERM
_FORWARD_S = 1.0


class StopRequest:
    """A context in which signals become a request. Handlers are put back on leaving.

    Outside the main thread no handler can be set: there `request` alone makes it true. The same signal a second
    time leaves at once with exit code 130; another one within a second counts as the same wish, as launchers
    forward what the terminal already sent.
    """

    def __init__(self, *, leave: Callable[[int], Any] = os._exit, clock: Callable[[], float] = time.monotonic) -> None:
        self.reason = ""
        self._leave, self._clock = leave, clock
        self._asked_s = 0.0
        self._former: dict[int, Any] = {}
        self._pid = os.getpid()

    @property
    def requested(self) -> bool:
        """Whether to save and stop at the next chance."""
        return bool(self.reason)

    @property
    def preempted(self) -> bool:
        """Whether the wish came from outside (SIGTERM, SIGHUP), not from the keyboard or the program."""
        return self.reason in ("SIGTERM", "SIGHUP")

    def request(self, reason: str) -> None:
        """Ask for a stop from the program itself; the first reason stays."""
        if not self.reason:
            self.reason = reason
            self._asked_s = self._clock()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in ("SIGTERM", "SIGINT", "SIGHUP"):
                number = getattr(signal, name, None)
                if number is None or (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):
                    continue
                self._former[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._former.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if os.getpid() != self._pid:  # a forked loader process: its parent decides about Ctrl-C, SIGTERM ends it
            if name == "SIGTERM":
                os._exit(EXIT_CHILD)
        elif not self.reason:
            self.request(name)
        elif name == self.reason or self._clock() - self._asked_s > _FORWARD_S:
            self._leave(EXIT_AT_ONCE)
