"""Gradients of one unit at a time: summed over micro-batches in fp32, rounded once, measured, put where they live.

With one contribution the parameter's gradient is that sum already and no fp32 buffer exists. The norm of each parameter
is taken from the rounded gradient in fp32 and all norms together once, as torch's clip_grad_norm_ does it, so the
result depends neither on units nor on tiers.
"""

from collections.abc import Sequence

import torch

from stoker.engine.tiers.homes import UnitHome
from stoker.engine.tiers.lanes import Lanes, copy
from stoker.engine.tiers.layout import Slot
from stoker.engine.tiers.ring import Ring, RingSlot

_PART_ELEMENTS = 1 << 24  # an embedding's fp32 sum as a whole would be twice its gradient


class GradientFlow:
    """`shared`: parameters (by id) that more than one unit adds to; their sums live until the owner closes.

    `outer`: units outside the blocks, whose staging buffers are made when needed.
    """

    def __init__(
        self,
        homes: Sequence[UnitHome],
        lanes: Lanes,
        device: torch.device,
        *,
        num_params: int,
        outer: Sequence[int],
    ) -> None:
        self._homes, self._lanes, self._device = homes, lanes, device
        self._outer = frozenset(outer)
        size = max((h.layout.grad_bytes for h in homes if h.grads_on_host and h.index not in self._outer), default=0)
        self._ring = Ring(2, size, device) if size else None
        self.ring_bytes = 2 * size
        self._sums: dict[int, torch.Tensor] = {}
        self._held: dict[int, torch.Tensor] = {}
        self._seen: dict[int, set[int]] = {}
        self._norms = torch.zeros(num_params, device=device)
        self._index: dict[tuple[int, ...], torch.Tensor] = {}
        self._single = False

    def start(self, micro_batches: int) -> None:
        """A new step of so many micro-batches."""
        self._sums.clear()
        self._held.clear()
        self._seen.clear()
        self._norms.zero_()
        self._single = micro_batches == 1

    @torch.no_grad()
    def add(self, unit: int, *, last: bool) -> None:
        """Take the gradients that a backward left in the parameters of `unit` (they may stay there if it was the only
        one and `last`)."""
        home = self._homes[unit]
        if not home.learns or (self._single and last):
            return
        if all(slot.param.grad is None for slot in home.layout.slots):
            return
        if self._single and not last:
            self._hold(home)
            return
        views = {slot.index: view for slot, view in self._sum_views(unit)}
        seen = self._seen.setdefault(unit, set())
        for slot in home.layout.slots:
            grad = slot.param.grad
            if grad is None:
                continue
            if slot.index in seen:
                views[slot.index].add_(grad)
            else:
                views[slot.index].copy_(grad)
                seen.add(slot.index)
            slot.param.grad = None

    @torch.no_grad()
    def close(self, unit: int, *, unscale: float) -> tuple[torch.Tensor | None, RingSlot | None]:
        """Round, measure and store the gradient of `unit`.

        Returns (its device buffer for an update right away, the ring slot to free behind that), with `home.absent`
        naming parameters that got none. `unscale`: 1 / the loss scale.
        """
        home = self._homes[unit]
        if not home.learns:
            return None, None
        buffer, slot = self._target(home)
        present: list[tuple[Slot, torch.Tensor]] = []
        sums = {s.index: view for s, view in self._sum_views(unit)} if unit in self._sums else {}
        seen = self._seen.get(unit, set())
        for item, view in home.layout.grad_views(buffer):
            if item.index in seen:
                _put(view, sums[item.index], None, unscale)
            elif not self._join(item, view, unscale):
                continue
            present.append((item, view))
            item.param.grad = None
        self._sums.pop(unit, None)
        home.absent = frozenset(s.index for s in home.layout.slots) - {s.index for s, _view in present}
        if present:
            norms = torch._foreach_norm([view for _slot, view in present], 2, dtype=torch.float32)
            self._norms.index_copy_(0, self._places(tuple(s.index for s, _view in present)), torch.stack(norms))
        home.grads_ready = self._lanes.compute_mark()
        return buffer, slot

    def store(self, unit: int, buffer: torch.Tensor, slot: RingSlot | None) -> None:
        """Bring a staged gradient to DRAM, where the unit's gradient lives there."""
        home = self._homes[unit]
        if not home.grads_on_host:
            return
        assert home.host_grads is not None
        host = home.host_grads
        passing = () if slot is not None else (buffer,)
        home.grads_ready = self._lanes.down.submit(lambda: copy(host, buffer), after=[home.grads_ready], uses=passing)
        if slot is not None:
            Ring.free(slot, (home.grads_ready,))

    def norm(self) -> torch.Tensor:
        """L2 norm over all parameters, fp32, on the device."""
        total: torch.Tensor = torch.linalg.vector_norm(self._norms)
        return total

    def _hold(self, home: UnitHome) -> None:
        """The only micro-batch's share of a tied weight from its other use: kept as it is, half of an fp32 sum.

        It waits where the gradient will be, which the update has read by now.
        """
        places = {}
        if home.device_grads is not None:
            self._lanes.compute_wait(home.grads_taken)
            places = {slot.index: view for slot, view in home.layout.grad_views(home.device_grads)}
        for slot in home.layout.slots:
            grad = slot.param.grad
            if grad is not None:
                self._held[slot.index] = places[slot.index].copy_(grad) if places else grad
                slot.param.grad = None

    def _join(self, slot: Slot, view: torch.Tensor, unscale: float) -> bool:
        """Put into `view` the sum of what was held and what backward left, where there is either."""
        found = [part for part in (self._held.pop(slot.index, None), slot.param.grad) if part is not None]
        if found:
            _put(view, found[0], found[1] if len(found) > 1 else None, unscale)
        return bool(found)

    def _places(self, indices: tuple[int, ...]) -> torch.Tensor:
        """`indices` on the device; kept, because bringing them there makes the host wait."""
        if indices not in self._index:
            self._index[indices] = torch.tensor(indices, device=self._device)
        return self._index[indices]

    def _sum_views(self, unit: int) -> list[tuple[Slot, torch.Tensor]]:
        layout = self._homes[unit].layout
        if unit not in self._sums:
            self._sums[unit] = torch.empty(layout.wide_grad_bytes, dtype=torch.uint8, device=self._device)
        return list(layout.grad_views(self._sums[unit], wide=True))

    def _target(self, home: UnitHome) -> tuple[torch.Tensor, RingSlot | None]:
        if home.device_grads is not None:
            self._lanes.compute_wait(home.grads_taken)
            return home.device_grads, None
        if home.index in self._outer or self._ring is None:
            return torch.empty(home.layout.grad_bytes, dtype=torch.uint8, device=self._device), None
        slot = self._ring.take()
        for mark in slot.busy:
            self._lanes.compute_wait(mark)
        return slot.buffer[: home.layout.grad_bytes], slot


def _put(view: torch.Tensor, source: torch.Tensor, other: torch.Tensor | None, unscale: float) -> None:
    """view <- (source + other) x unscale, the sum in fp32 and a part at a time; `source` may be `view` itself."""
    if other is None:
        view.copy_(source if unscale == 1.0 else source * unscale)
        return
    target, first, second = view.view(-1), source.reshape(-1), other.reshape(-1)
    for start in range(0, target.numel(), _PART_ELEMENTS):
        part = slice(start, start + _PART_ELEMENTS)
        total = first[part].to(torch.float32).add_(second[part])
        target[part].copy_(total if unscale == 1.0 else total * unscale)
