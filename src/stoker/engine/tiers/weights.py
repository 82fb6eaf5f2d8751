"""Weights that live off the device come in ahead of use, into a few block-sized buffers, and stay as long as they may.

A unit whose weights are resident passes through here without a copy. What is streamed crosses the link once for a pass
over the model; at the turn from forward to backward, and from backward to the next forward, the last units are still in
their buffers.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch

from stoker.engine.tiers.homes import UnitHome
from stoker.engine.tiers.lanes import Lanes, Mark, copy
from stoker.engine.tiers.nvme import FlashFile


@dataclass(slots=True)
class _Buffer:
    tensor: torch.Tensor
    unit: int | None = None
    used: int = 0


@dataclass(slots=True)
class _Staging:
    tensor: torch.Tensor
    busy: list[Mark | None] = field(default_factory=list)
    writing: "Future[None] | None" = None


class WeightFlow:
    """Device buffers of streamed units. `outer`: units outside the blocks, which get a buffer of their own each time.

    `num_buffers`: for blocks. `staging`: page-aligned host buffers, where weights live on flash.
    """

    def __init__(
        self,
        homes: Sequence[UnitHome],
        lanes: Lanes,
        device: torch.device,
        *,
        num_buffers: int,
        outer: Sequence[int],
        flash: FlashFile | None = None,
        staging: Sequence[torch.Tensor] = (),
    ) -> None:
        self._homes, self._lanes, self._device = homes, lanes, device
        self._outer, self._flash = frozenset(outer), flash
        size = max((h.layout.weight_bytes for h in homes if h.streamed and h.index not in self._outer), default=0)
        count = num_buffers if size else 0
        self.buffer_bytes = count * size
        self._buffers = [_Buffer(torch.zeros(size, dtype=torch.uint8, device=device)) for _buffer in range(count)]
        self._own: dict[int, torch.Tensor] = {}
        self._at: dict[int, torch.Tensor] = {}
        self._arriving: dict[int, tuple[Future[None], _Staging]] = {}
        self._staging = [_Staging(tensor) for tensor in staging]
        self._clock = 0
        self._bound: set[int] = set()

    def request(self, unit: int) -> None:
        """Start bringing `unit` in, if it is not there."""
        home = self._homes[unit]
        if not home.streamed or not home.layout.weight_bytes:
            return
        self._clock += 1
        if unit in self._at:
            self._touch(unit)
            return
        buffer, after = self._room(unit)
        self._at[unit] = buffer
        if home.host_weights is not None:
            host = home.host_weights
            home.ready = self._lanes.up.submit(
                lambda: copy(buffer, host), after=[*after, home.host_written], uses=self._passing(unit, buffer)
            )
            return
        assert self._flash is not None and home.flash_weights is not None
        staging = self._take_staging()
        request = self._flash.read(
            home.flash_weights, staging.tensor[: home.layout.weight_bytes], after=home.weights_written
        )
        self._arriving[unit] = (request, staging)
        home.ready = self._lanes.up.submit(lambda: None, after=after)  # what the later copy must wait for

    def land(self, unit: int) -> torch.Tensor:
        """The device buffer of `unit`, its copy queued: use it behind `ready`."""
        home = self._homes[unit]
        if home.device_weights is not None:
            return home.device_weights
        self.request(unit)
        if unit in self._arriving:
            assert self._flash is not None
            request, staging = self._arriving.pop(unit)
            self._flash.wait(request)
            buffer = self._at[unit]
            home.ready = self._lanes.up.submit(
                lambda: copy(buffer, staging.tensor), after=[home.ready], uses=self._passing(unit, buffer)
            )
            staging.busy = [home.ready]
        return self._at[unit]

    def use(self, unit: int) -> None:
        """Bind the parameters of `unit` to the device; what is computed from here on may use them."""
        home = self._homes[unit]
        if not home.layout.weight_bytes:
            return
        buffer = self.land(unit)
        self._lanes.compute_wait(home.ready)
        if home.streamed and unit not in self._bound:
            home.layout.bind(buffer[: home.layout.weight_bytes])
            self._bound.add(unit)

    def used(self, unit: int) -> None:
        """What was computed so far is the last that uses `unit` for now."""
        home = self._homes[unit]
        home.last_use = self._lanes.compute_mark()
        if unit in self._own:
            self._drop(unit)

    def write_back(self, unit: int, after: Mark | None) -> None:
        """Bring what an update changed on the device to where the weights live."""
        home = self._homes[unit]
        size = home.layout.trainable_bytes
        if not home.streamed or not size:
            return
        buffer = self._at[unit]
        if home.host_weights is not None:
            host = home.host_weights
            home.host_written = self._lanes.down.submit(
                lambda: copy(host[:size], buffer), after=[after], uses=self._passing(unit, buffer)
            )
            return
        assert self._flash is not None and home.flash_weights is not None
        staging = self._take_staging()
        view = staging.tensor[: home.layout.weight_bytes]
        home.host_written = self._lanes.down.submit(
            lambda: copy(view, buffer), after=[after], uses=self._passing(unit, buffer)
        )
        home.weights_written = staging.writing = self._flash.write(home.flash_weights, view, after=home.host_written)

    def forget(self, unit: int) -> None:
        """The copy of `unit` on the device is out of date."""
        if unit in self._at:
            self._drop(unit)

    def park(self) -> None:
        """Bind every streamed unit to its home in DRAM and empty the buffers; pending copies are waited for."""
        for unit in list(self._at):
            self._drop(unit)
        self._lanes.drain()
        for staging in self._staging:
            self._until_free(staging)

    def _room(self, unit: int) -> tuple[torch.Tensor, list[Mark | None]]:
        if unit in self._outer:
            size = self._homes[unit].layout.weight_bytes
            buffer = self._own[unit] = torch.empty(size, dtype=torch.uint8, device=self._device)
            return buffer, [self._lanes.compute_mark()]
        chosen = min(self._buffers, key=lambda b: (b.unit is not None, b.used))
        after: list[Mark | None] = []
        if chosen.unit is not None:
            former = self._homes[chosen.unit]
            after = [former.last_use, former.host_written, former.ready]
            self._drop(chosen.unit)
        chosen.unit, chosen.used = unit, self._clock
        return chosen.tensor, after

    def _touch(self, unit: int) -> None:
        for buffer in self._buffers:
            if buffer.unit == unit:
                buffer.used = self._clock

    def _drop(self, unit: int) -> None:
        if unit in self._arriving:
            self.land(unit)
        self._at.pop(unit)
        self._own.pop(unit, None)
        for buffer in self._buffers:
            if buffer.unit == unit:
                buffer.unit = None
        home = self._homes[unit]
        self._bound.discard(unit)
        if home.host_weights is not None:
            home.layout.bind(home.host_weights)
        else:
            home.layout.unbind()

    def _passing(self, unit: int, buffer: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (buffer,) if unit in self._outer else ()

    def _take_staging(self) -> _Staging:
        staging = self._staging.pop(0)
        self._staging.append(staging)
        for unit in [unit for unit, (_request, held) in self._arriving.items() if held is staging]:
            self.land(unit)
        self._until_free(staging)
        return staging

    def _until_free(self, staging: _Staging) -> None:
        for mark in staging.busy:
            if mark is not None:
                mark.synchronize()
        staging.busy = []
        if staging.writing is not None:
            assert self._flash is not None
            self._flash.wait(staging.writing)
            staging.writing = None
