"""Samples to micro-batches: which samples a step holds, how they are padded, assembled ahead of the device.

An optimizer step is the next `global_batch_size` samples of the epoch's order (`ordering`), an epoch's last step
may be shorter and nothing is dropped. Micro-batches inside a step are the packing technique's choice.
"""

import queue
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from stoker.engine.microbatch import MicroBatch, StepBatch
from stoker.engine.ordering import step_samples
from stoker.techniques.protocols import PackingTechnique

T = TypeVar("T")
_AHEAD = 4  # steps assembled before the device asks for them


class Source(Protocol):
    """A split that can be collated. `lengths`: tokens of each sample (1 for an image)."""

    @property
    def lengths(self) -> Sequence[int]: ...

    def __len__(self) -> int: ...

    def collate(self, samples: Sequence[int]) -> MicroBatch:
        """The micro-batch of `samples`."""


class StepPlan:
    """The micro-batches of every optimizer step, by number: a pure function of seed and step."""

    def __init__(
        self, source: Source, packing: PackingTechnique, *, seed: int, global_batch_size: int, micro_batch_size: int
    ) -> None:
        self.source, self.packing, self.seed = source, packing, seed
        self.global_batch_size, self.micro_batch_size = global_batch_size, micro_batch_size

    def samples(self, step: int) -> tuple[int, list[list[int]]]:
        """(epoch, samples of each micro-batch) of optimizer step `step`, counted from 0."""
        epoch, samples = step_samples(self.seed, step, len(self.source), self.global_batch_size)
        return epoch, self.packing.micro_batches(self.source.lengths, samples, self.micro_batch_size)

    def batch(self, step: int) -> StepBatch:
        """Step `step`, collated."""
        epoch, groups = self.samples(step)
        return StepBatch(step=step, epoch=epoch, micro_batches=tuple(self.source.collate(group) for group in groups))

    def longest(self) -> list[int]:
        """Samples of the fullest micro-batch that the data can give (case 8)."""
        lengths = self.source.lengths
        return sorted(range(len(self.source)), key=lambda i: -lengths[i])[: self.micro_batch_size]


def evaluation_batches(source: Source, micro_batch_size: int) -> Iterator[MicroBatch]:
    """Every sample once, longest first, in micro-batches of alike length."""
    lengths = source.lengths
    order = sorted(range(len(source)), key=lambda i: -lengths[i])
    for start in range(0, len(order), micro_batch_size):
        yield source.collate(order[start : start + micro_batch_size])


class Ahead(Generic[T]):
    """An iterator whose items are made by one thread, a few ahead. Leaving the context ends the thread.

    A thread, not processes: nothing is forked, so neither /dev/shm (case 28) nor a tokenizer's fork lock
    (case 31) plays a part, and an iterable is read once (case 29).
    """

    def __init__(self, items: Iterator[T], depth: int = _AHEAD) -> None:
        self._items = items
        self._queue: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=depth)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="stoker-batches", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=60.0)

    def __iter__(self) -> Iterator[T]:
        while True:
            kind, value = self._queue.get()
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value

    def _fill(self) -> None:
        try:
            for item in self._items:
                if not self._put("item", item):
                    return
            self._put("end", None)
        except BaseException as error:  # shown in the thread that trains
            self._put("error", error)

    def _put(self, kind: str, value: Any) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put((kind, value), timeout=0.1)
            except queue.Full:
                continue
            return True
        return False
