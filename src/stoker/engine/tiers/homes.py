"""Where each unit's weights, gradients and state lie, allocated once from a schedule, and the marks that guard them."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch

from stoker.core.schedule import TierSchedule, UnitPlacement
from stoker.engine.tiers.lanes import Mark
from stoker.engine.tiers.layout import UnitLayout, aligned
from stoker.engine.tiers.nvme import FlashFile
from stoker.engine.tiers.slab import HostSlab


@dataclass(slots=True, kw_only=True)
class UnitHome:
    """One unit's buffers (bytes, None where it has none) and marks.

    `ready`: its weights on the device may be used. `last_use`: the compute that used them is done. `host_written`: its
    weights on the host are those of the last update. `state_written[i]`: piece i is back where it lives.
    `grads_ready`, `grads_taken`: its gradient is whole; has been read by the update.
    """

    index: int
    layout: UnitLayout
    place: UnitPlacement
    device_weights: torch.Tensor | None = None
    host_weights: torch.Tensor | None = None
    flash_weights: int | None = None
    device_state: torch.Tensor | None = None
    host_state: torch.Tensor | None = None
    flash_state: int | None = None
    device_grads: torch.Tensor | None = None
    host_grads: torch.Tensor | None = None
    ready: Mark | None = None
    last_use: Mark | None = None
    host_written: Mark | None = None
    weights_written: "Future[None] | None" = None
    state_written: list[Mark | None] = field(default_factory=list)
    grads_ready: Mark | None = None
    grads_taken: Mark | None = None
    absent: frozenset[int] = frozenset()
    update_done: "Future[Any] | None" = None

    @property
    def learns(self) -> bool:
        return bool(self.layout.blocks)

    @property
    def streamed(self) -> bool:
        """Whether its weights come to the device and go again."""
        return self.place.weights != "hbm"

    @property
    def on_cpu(self) -> bool:
        """Whether its update runs in DRAM."""
        return self.place.update == "cpu" and self.learns

    @property
    def grads_on_host(self) -> bool:
        return self.learns and (self.on_cpu or self.place.gradients != "hbm")

    @property
    def state_bytes(self) -> int:
        return self.layout.state_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSizes:
    """Bytes that a schedule allocates for good, by tier. `staging`: of `dram`, what flash is read into."""

    hbm: int
    dram: int
    nvme: int
    staging: int


def place_units(layouts: Sequence[UnitLayout], schedule: TierSchedule) -> list[UnitHome]:
    """A home for each unit, nothing allocated yet."""
    return [
        UnitHome(index=index, layout=layout, place=place)
        for index, (layout, place) in enumerate(zip(layouts, schedule.placements, strict=True))
    ]


def staging_bytes(homes: Sequence[UnitHome], schedule: TierSchedule) -> tuple[int, int, int, int]:
    """(pieces, bytes of each, weight buffers, bytes of each) through which flash is read and written."""
    pieces = [p.num_bytes for home in homes if home.place.state == "nvme" for _b, p in home.layout.pieces]
    weights = [home.layout.weight_bytes for home in homes if home.place.weights == "nvme"]
    count = max(schedule.ring_pieces, schedule.staging_pieces)
    return (
        (count if pieces else 0),
        max(pieces, default=0),
        schedule.prefetch_units + 2 if weights else 0,
        max(weights, default=0),
    )


def tier_sizes(homes: Sequence[UnitHome], schedule: TierSchedule) -> TierSizes:
    """What `allocate` will take, device rings and the slab of gradients and activations apart."""
    hbm = dram = nvme = 0
    for home in homes:
        layout, place = home.layout, home.place
        hbm += layout.weight_bytes if place.weights == "hbm" else 0
        hbm += layout.state_bytes if place.state == "hbm" else 0
        hbm += layout.grad_bytes if not home.grads_on_host else 0
        dram += aligned(layout.weight_bytes) if place.weights == "dram" or home.on_cpu else 0
        dram += aligned(layout.state_bytes) if place.state == "dram" else 0
        nvme += aligned(layout.weight_bytes) if place.weights == "nvme" and not home.on_cpu else 0
        nvme += aligned(layout.state_bytes) if place.state == "nvme" else 0
    count, size, weight_count, weight_size = staging_bytes(homes, schedule)
    staging = count * aligned(size) + weight_count * aligned(weight_size)
    return TierSizes(hbm=hbm, dram=dram + staging, nvme=nvme, staging=staging)


@torch.no_grad()
def allocate(homes: Sequence[UnitHome], slab: HostSlab | None, flash: FlashFile | None, device: torch.device) -> None:
    """Give every unit its buffers and move the model's weights there; state starts at zero, masters at the weights.

    One unit after the other, so that the model never stands twice in any tier.
    """
    place = 0
    for home in homes:
        layout = home.layout
        home.state_written = [None] * sum(1 for _piece in layout.pieces)
        if home.place.state == "hbm":
            home.device_state = torch.zeros(layout.state_bytes, dtype=torch.uint8, device=device)
        elif home.place.state == "dram":
            assert slab is not None
            home.host_state = slab.take(layout.state_bytes)
        elif layout.state_bytes:
            home.flash_state, place = place, place + aligned(layout.state_bytes)
        if home.learns and not home.grads_on_host:
            home.device_grads = torch.zeros(layout.grad_bytes, dtype=torch.uint8, device=device)
        place = _allocate_weights(home, slab, flash, device, place)


def _allocate_weights(
    home: UnitHome, slab: HostSlab | None, flash: FlashFile | None, device: torch.device, place: int
) -> int:
    layout = home.layout
    if home.place.weights == "dram" or home.on_cpu:
        assert slab is not None
        home.host_weights = slab.take(layout.weight_bytes)
        layout.fill(home.host_weights)
    if home.place.weights == "hbm":
        home.device_weights = torch.zeros(layout.weight_bytes, dtype=torch.uint8, device=device)
        layout.fill(home.device_weights)
        layout.bind(home.device_weights)
    elif home.host_weights is not None:
        layout.bind(home.host_weights)
    elif layout.weight_bytes:
        assert flash is not None
        home.flash_weights = place
        whole = torch.zeros(aligned(layout.weight_bytes) + 4096, dtype=torch.uint8)
        start = -whole.data_ptr() % 4096
        page = whole[start : start + aligned(layout.weight_bytes)]
        layout.fill(page)
        flash.wait(flash.write(place, page))
        layout.unbind()
        place += aligned(layout.weight_bytes)
    return place
