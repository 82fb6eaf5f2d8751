"""Fixed rings of buffers: a slot is handed out again only behind the marks of what last used it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from stoker.engine.tiers.lanes import Mark


@dataclass(slots=True)
class RingSlot:
    """A buffer (uint8) and the marks that must pass before it may be overwritten."""

    buffer: torch.Tensor
    busy: list[Mark | None] = field(default_factory=list)


class Ring:
    """`count` device buffers of `num_bytes`, used in turn."""

    def __init__(self, count: int, num_bytes: int, device: torch.device) -> None:
        self.num_bytes = num_bytes
        self._slots = [RingSlot(torch.zeros(num_bytes, dtype=torch.uint8, device=device)) for _slot in range(count)]
        self._next = 0

    def take(self) -> RingSlot:
        """The next slot; whoever writes it waits for its `busy` first, and then says with `free` what reads it."""
        slot = self._slots[self._next]
        self._next = (self._next + 1) % len(self._slots)
        return slot

    @staticmethod
    def free(slot: RingSlot, marks: Iterable[Mark | None]) -> None:
        """The slot may be taken again behind `marks`."""
        slot.busy = list(marks)
