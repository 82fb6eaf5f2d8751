"""State that lives on flash passes through page-aligned buffers in DRAM, read ahead in the order of the updates.

A buffer goes round: read, taken by an update, changed, written back, read again. Reading ahead needs no norm, so it
runs under forward and backward as far as buffers are free; the write of a piece is waited for only by the next read of
the same piece, or by the buffer's next use.
"""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from stoker.engine.tiers.homes import UnitHome
from stoker.engine.tiers.lanes import Mark
from stoker.engine.tiers.nvme import FlashFile

Key = tuple[int, int]


@dataclass(slots=True)
class Staged:
    """A buffer with the piece `key` = (unit, number) in it or on its way."""

    tensor: torch.Tensor
    key: Key | None = None
    reading: "Future[None] | None" = None
    writing: "Future[None] | None" = None


class FlashState:
    """State of the units that live on flash, through `buffers`."""

    def __init__(self, homes: Sequence[UnitHome], flash: FlashFile, buffers: Sequence[torch.Tensor]) -> None:
        self._homes, self._flash = homes, flash
        self._free = deque(Staged(tensor) for tensor in buffers)
        self._ahead: deque[Staged] = deque()
        self._written: dict[Key, Future[None]] = {}
        self._offsets = {home.index: [p.offset for _b, p in home.layout.pieces] for home in homes}
        self._sizes = {home.index: [p.num_bytes for _b, p in home.layout.pieces] for home in homes}
        self._plan: Iterator[Key] = iter(())
        self._lock = threading.RLock()  # the DRAM lane takes pieces on its own thread

    def expect(self, units: Sequence[int]) -> None:
        """Updates will come in this order of units; starts reading."""
        with self._lock:
            self._plan = iter([(u, i) for u in units if self._on_flash(u) for i in range(len(self._offsets[u]))])
            self.read_ahead()

    def read_ahead(self) -> None:
        """Start as many reads as there are buffers that wait for nothing."""
        with self._lock:
            while self._free and _is_done(self._free[0].writing):
                key = next(self._plan, None)
                if key is None:
                    return
                self._ahead.append(self._read(key))

    def take(self, unit: int, number: int) -> Staged:
        """The piece, read. Raises RunError ST462."""
        with self._lock:
            key = (unit, number)
            self.read_ahead()
            if not self._ahead or self._ahead[0].key != key:
                self._forget_ahead()
                self._ahead.append(self._read(key))
            staged = self._ahead.popleft()
            assert staged.reading is not None
            self._flash.wait(staged.reading)
            return staged

    def give(self, staged: Staged, after: Mark | None) -> None:
        """Write the changed piece back once `after` has passed."""
        with self._lock:
            assert staged.key is not None
            unit, number = staged.key
            view = staged.tensor[: self._sizes[unit][number]]
            staged.writing = self._written[staged.key] = self._flash.write(self._place(staged.key), view, after=after)
            self._free.append(staged)
            self.read_ahead()

    def load(self, unit: int, number: int) -> torch.Tensor:
        """A copy of the piece as it stands on flash."""
        with self._lock:
            self._settle()
            staged = self._read((unit, number))
            assert staged.reading is not None
            self._flash.wait(staged.reading)
            self._free.append(staged)
            return staged.tensor[: self._sizes[unit][number]].clone()

    def store(self, unit: int, number: int, content: torch.Tensor) -> None:
        """Replace the piece on flash."""
        with self._lock:
            self._settle()
            staged = self._free.popleft()
            staged.tensor[: content.numel()].copy_(content)
            staged.key = (unit, number)
            self.give(staged, None)
            self.settle()

    def settle(self) -> None:
        """Until every write is on its way to the disk and done; what was read ahead is forgotten."""
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        self._plan = iter(())
        self._forget_ahead()
        for staged in self._free:
            if staged.writing is not None:
                self._flash.wait(staged.writing)
                staged.writing = None
        self._written.clear()

    def _forget_ahead(self) -> None:
        """Reads in another order than the updates ask for are of no use."""
        while self._ahead:
            staged = self._ahead.popleft()
            if staged.reading is not None:
                self._flash.wait(staged.reading)
            self._free.append(staged)

    def _read(self, key: Key) -> Staged:
        staged = self._free.popleft()
        if staged.writing is not None:
            self._flash.wait(staged.writing)
            staged.writing = None
        staged.key = key
        unit, number = key
        view = staged.tensor[: self._sizes[unit][number]]
        staged.reading = self._flash.read(self._place(key), view, after=self._written.pop(key, None))
        return staged

    def _place(self, key: Key) -> int:
        base = self._homes[key[0]].flash_state
        assert base is not None
        return base + self._offsets[key[0]][key[1]]

    def _on_flash(self, unit: int) -> bool:
        return self._homes[unit].flash_state is not None


def _is_done(request: "Future[None] | None") -> bool:
    return request is None or request.done()
