"""Where copies and updates run beside the compute: three CUDA streams, or plain order on a CPU.

Work is submitted as a closure to a lane and answered by a mark; a lane waits for marks before the work that names
them. Both directions need it: a read waits for the write before it, a write for the reads of what it replaces. The CPU
form runs everything at once; tests put in one that runs as late as the marks allow, so that a missing wait shows on a
machine without a GPU.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch

Work = Callable[[], None]


class Mark(Protocol):
    """A point in a lane's work."""

    def synchronize(self) -> Any:
        """Make the host wait until the work before the mark is done."""


class Lane(Protocol):
    """An ordered queue of work."""

    def submit(
        self, work: Work, *, after: Iterable[Mark | None] = (), uses: Sequence[torch.Tensor] = ()
    ) -> Mark | None:
        """Queue `work` behind what was queued here and behind `after`; `uses`: passing tensors of the compute."""


class Lanes(Protocol):
    """`up`: host to device; `down`: device to host; `update`: the optimizer on the device."""

    @property
    def up(self) -> Lane: ...

    @property
    def down(self) -> Lane: ...

    @property
    def update(self) -> Lane: ...

    def compute_mark(self) -> Mark | None:
        """All that was computed so far."""

    def compute_wait(self, mark: Mark | None) -> None:
        """What is computed from here on comes after `mark`."""

    def drain(self) -> None:
        """Make the host wait for everything."""


class _InlineLane:
    def submit(self, work: Work, *, after: Iterable[Mark | None] = (), uses: Sequence[torch.Tensor] = ()) -> None:
        for mark in after:
            if mark is not None:
                mark.synchronize()
        work()


class InlineLanes:
    """Plain order."""

    def __init__(self) -> None:
        self.up = self.down = self.update = _InlineLane()

    def compute_mark(self) -> None:
        return None

    def compute_wait(self, mark: Mark | None) -> None:
        if mark is not None:
            mark.synchronize()

    def drain(self) -> None:
        return None


class _CudaLane:
    def __init__(self, device: torch.device, priority: int = 0) -> None:
        self.stream: Any = torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]

    def submit(
        self, work: Work, *, after: Iterable[Mark | None] = (), uses: Sequence[torch.Tensor] = ()
    ) -> Mark | None:
        for mark in after:
            if mark is not None:
                self.stream.wait_event(mark)
        with torch.cuda.stream(self.stream):
            work()
        for tensor in uses:
            tensor.record_stream(self.stream)
        recorded: Mark = self.stream.record_event()
        return recorded


class CudaLanes:
    """Three streams of one device beside its current one."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.up, self.down = _CudaLane(device), _CudaLane(device)
        # an update is short and holds a slot of the ring: it must not queue behind products that last a millisecond
        self.update = _CudaLane(device, priority=-1)

    def compute_mark(self) -> Mark | None:
        mark: Mark = torch.cuda.current_stream(self.device).record_event()
        return mark

    def compute_wait(self, mark: Mark | None) -> None:
        if mark is not None:
            torch.cuda.current_stream(self.device).wait_event(mark)  # type: ignore[arg-type]

    def drain(self) -> None:
        torch.cuda.synchronize(self.device)


def lanes_for(device: torch.device) -> Lanes:
    """Streams on CUDA, plain order elsewhere."""
    return CudaLanes(device) if device.type == "cuda" else InlineLanes()


def copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """The head of the longer one is what both hold; on CUDA only queued."""
    size = min(target.numel(), source.numel())
    target[:size].copy_(source[:size], non_blocking=True)
