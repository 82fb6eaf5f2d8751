"""The inputs of every unit for every micro-batch of a step, kept for its recomputation: on the device or in DRAM.

Gradients and boundary inputs in DRAM share one slab, because they are complementary in time: backward frees the inputs
of a unit as it makes its gradient, and the next forward uses a gradient up before it keeps the inputs there. Inputs
fill the slab from the bottom in the order of forward, gradients from the top in the order of backward; its size is the
largest sum that any unit sees. On the device it is simpler: a unit's inputs lie in its own gradient buffer.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stoker.engine.tiers.homes import UnitHome
from stoker.engine.tiers.lanes import Lanes, Mark, copy
from stoker.engine.tiers.layout import aligned
from stoker.engine.tiers.ring import Ring, RingSlot
from stoker.engine.tiers.slab import HostSlab

_INPUT_ALIGN = 256
_COPIES = 6  # to DRAM under way at once: they share their link with state that is written back


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLayout:
    """Offsets of each unit's inputs and gradient in the slab, None where they live elsewhere."""

    inputs: tuple[int | None, ...]
    grads: tuple[int | None, ...]
    num_bytes: int


def share_slab(input_bytes: Sequence[int], grad_bytes: Sequence[int]) -> SharedLayout:
    """Both sequences by unit in the order of forward, 0: nothing of it is in DRAM.

    While unit u is at work inputs 0..u and gradients u..n-1 may be there at once.
    """
    ins, outs = [aligned(size) for size in input_bytes], [aligned(size) for size in grad_bytes]
    total = max((sum(ins[: u + 1]) + sum(outs[u:]) for u in range(len(ins))), default=0)
    return SharedLayout(
        inputs=tuple(sum(ins[:u]) if ins[u] else None for u in range(len(ins))),
        grads=tuple(total - sum(outs[u:]) if outs[u] else None for u in range(len(outs))),
        num_bytes=total,
    )


@dataclass(slots=True)
class _Kept:
    device: torch.Tensor | None
    host: torch.Tensor | None
    shape: torch.Size
    dtype: torch.dtype
    written: Mark | None = None
    slot: RingSlot | None = None
    ready: Mark | None = None


class BoundaryStore:
    """Keeps and gives back boundary inputs. `in_flight`: inputs on their way back, or in use."""

    def __init__(self, homes: Sequence[UnitHome], lanes: Lanes, device: torch.device, *, in_flight: int = 3) -> None:
        self._homes, self._lanes, self._device, self._in_flight = homes, lanes, device, in_flight
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._copies: deque[Mark | None] = deque()
        self._ring: Ring | None = None
        self._slab: HostSlab | None = None
        self._layout: SharedLayout | None = None
        self._fill: dict[int, int] = {}

    @property
    def offloads(self) -> bool:
        """Whether any unit keeps its inputs in DRAM."""
        return any(home.place.activations != "hbm" for home in self._homes)

    def use_slab(self, slab: HostSlab | None, layout: SharedLayout | None, input_bytes: int) -> None:
        """Where inputs in DRAM go; `input_bytes`: of the largest one, for the ring they come back through."""
        self._slab, self._layout = slab, layout
        if self.offloads and (self._ring is None or self._ring.num_bytes < input_bytes):
            self._ring = Ring(self._in_flight, input_bytes, self._device)

    def start(self) -> None:
        """A new step: nothing is kept."""
        self._kept.clear()
        self._fill.clear()
        self._copies.clear()

    def keep(self, unit: int, micro: int, hidden: torch.Tensor) -> None:
        """Keep `hidden`, the input of `unit` for micro-batch `micro`."""
        home = self._homes[unit]
        if home.place.activations == "hbm":
            self._kept[unit, micro] = _Kept(self._stay(home, hidden), None, hidden.shape, hidden.dtype)
            return
        assert self._slab is not None and self._layout is not None
        base = self._layout.inputs[unit]
        assert base is not None
        begin = base + self._fill.get(unit, 0)
        size = hidden.numel() * hidden.element_size()
        if self._ring is None or size > self._ring.num_bytes:
            raise ValueError(f"unit {unit} keeps {size} bytes, more than the first block's inputs have")
        self._fill[unit] = self._fill.get(unit, 0) + aligned(size, _INPUT_ALIGN)
        host = self._slab.tensor[begin : begin + size]
        flat = hidden.contiguous().view(-1).view(torch.uint8)
        taken = (other.grads_taken for other in reversed(self._homes[: unit + 1]) if other.grads_taken is not None)
        after = [self._lanes.compute_mark(), next(taken, None)]  # updates run in order: the last one's mark covers all
        mark = self._lanes.down.submit(lambda: copy(host, flat), after=after, uses=(flat,))
        self._kept[unit, micro] = _Kept(None, host, hidden.shape, hidden.dtype, written=mark)
        self._copies.append(mark)
        if len(self._copies) > _COPIES:  # else a slow link would let copies pile up on the device
            self._lanes.compute_wait(self._copies.popleft())

    def _stay(self, home: UnitHome, hidden: torch.Tensor) -> torch.Tensor:
        """`hidden` where it stays on the device: in the unit's gradient buffer while there is room, which the update
        has read by now and which backward fills only behind the last use of these inputs."""
        hidden = hidden.contiguous()
        size = hidden.numel() * hidden.element_size()
        begin = self._fill.get(home.index, 0)
        if home.device_grads is None or begin + size > home.device_grads.numel():
            return hidden
        self._fill[home.index] = begin + aligned(size, _INPUT_ALIGN)
        self._lanes.compute_wait(home.grads_taken)
        place = home.device_grads[begin : begin + size].view(hidden.dtype).view(hidden.shape)
        return place.copy_(hidden)

    def request(self, unit: int, micro: int) -> None:
        """Start bringing an input back."""
        kept = self._kept.get((unit, micro))
        if kept is None or kept.host is None or kept.slot is not None or self._ring is None:
            return
        kept.slot = self._ring.take()
        buffer, host = kept.slot.buffer, kept.host
        kept.ready = self._lanes.up.submit(lambda: copy(buffer, host), after=[*kept.slot.busy, kept.written])

    def fetch(self, unit: int, micro: int) -> torch.Tensor:
        """The input, on the device."""
        kept = self._kept[unit, micro]
        if kept.device is not None:
            return kept.device
        self.request(unit, micro)
        assert kept.slot is not None and kept.host is not None
        self._lanes.compute_wait(kept.ready)
        return kept.slot.buffer[: kept.host.numel()].view(kept.dtype).view(kept.shape)

    def drop(self, unit: int, micro: int) -> None:
        """The input has been used for the last time."""
        kept = self._kept.pop((unit, micro))
        if kept.slot is not None and self._ring is not None:
            self._ring.free(kept.slot, (self._lanes.compute_mark(),))
