"""Where a step's time goes, by events on the compute stream (or the host's clock on a CPU): computing and waiting.

What waits for a tier is bracketed by two marks with nothing computed between them: on CUDA they lie apart by as long as
the stream stood still, on a CPU, where everything runs in plain order, by the moving itself.
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from statistics import median
from typing import Any

import torch

_BETWEEN = "between"  # two steps: updates that were decided start there


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeconds:
    """Of one step: computing of the blocks' forward, of the loss and head in both directions, of backward with what is
    computed again; waiting for weights, inputs and updates, in forward and in backward."""

    forward_s: float = 0.0
    loss_s: float = 0.0
    backward_s: float = 0.0
    forward_wait_s: float = 0.0
    backward_wait_s: float = 0.0

    @property
    def compute_s(self) -> float:
        return self.forward_s + self.loss_s + self.backward_s

    @property
    def waiting_s(self) -> float:
        return self.forward_wait_s + self.backward_wait_s


class StepClock:
    """Times phases, and the waits inside them. What is timed between two steps counts for the next one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._phases: list[tuple[str, Any, Any]] = []
        self._waits: list[tuple[str, Any, Any]] = []
        self._phase, self._waiting = _BETWEEN, False

    def begin(self) -> None:
        """A step begins; what a broken one left is dropped."""
        self._phases.clear()
        self._waits = [wait for wait in self._waits if wait[0] == _BETWEEN]
        self._phase, self._waiting = _BETWEEN, False

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """`forward`, `loss` or `backward`."""
        self._phase = name
        begin = self._now()
        yield
        self._phases.append((name, begin, self._now()))
        self._phase = _BETWEEN

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Inside: only transfers, updates and waits for them."""
        if self._waiting:
            yield
            return
        self._waiting = True
        begin = self._now()
        try:
            yield
        finally:
            self._waiting = False
        self._waits.append((self._phase, begin, self._now()))

    def take(self) -> StepSeconds:
        """The seconds since the last call; the host must have waited for the compute."""
        found = dict.fromkeys((field.name for field in fields(StepSeconds)), 0.0)
        for name, begin, end in self._phases:
            found[f"{name}_s"] += self._seconds(begin, end)
        for name, begin, end in self._waits:
            seconds = self._seconds(begin, end)
            found["backward_wait_s" if name == "backward" else "forward_wait_s"] += seconds
            if name != _BETWEEN:
                found[f"{name}_s"] -= seconds
        self._phases.clear()
        self._waits.clear()
        return StepSeconds(**{name: max(seconds, 0.0) for name, seconds in found.items()})

    def _now(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _seconds(self, begin: Any, end: Any) -> float:
        if isinstance(begin, float):
            return float(end - begin)
        return float(begin.elapsed_time(end)) / 1e3


class StepTimes:
    """Medians of the steps' terms, the first ones left out: they allocate, and on CUDA they compile."""

    def __init__(self, *, skipped: int = 3, kept: int = 1000) -> None:
        self._skip, self._steps = skipped, deque[StepSeconds](maxlen=kept)

    def add(self, seconds: StepSeconds) -> None:
        """One step."""
        if self._skip > 0:
            self._skip -= 1
        else:
            self._steps.append(seconds)

    def medians(self) -> StepSeconds | None:
        """Of each term by itself; None before the first step that counts."""
        if not self._steps:
            return None
        names = [field.name for field in fields(StepSeconds)]
        return StepSeconds(**{name: median(getattr(step, name) for step in self._steps) for name in names})
