"""From a program and a schedule to the engine's parts: every byte laid out, checked against the tiers, then taken."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from stoker.core.errors import RunError
from stoker.core.human import format_bytes
from stoker.core.i18n import _
from stoker.core.schedule import TierBudgets, TierSchedule, UnitSpec
from stoker.engine.tiers.boundaries import BoundaryStore, SharedLayout, share_slab
from stoker.engine.tiers.executor import Executor, Parts
from stoker.engine.tiers.flash_state import FlashState
from stoker.engine.tiers.gradients import GradientFlow
from stoker.engine.tiers.homes import TierSizes, UnitHome, allocate, place_units, staging_bytes, tier_sizes
from stoker.engine.tiers.lanes import Lanes, lanes_for
from stoker.engine.tiers.layout import UnitLayout, aligned, lay_out_unit
from stoker.engine.tiers.nvme import FlashFile, FlashPort
from stoker.engine.tiers.placing import all_on_device, schedule_for, specs_of
from stoker.engine.tiers.slab import HostSlab, require_dram
from stoker.engine.tiers.units import HuggingFaceProgram, Program
from stoker.engine.tiers.update import UnitUpdater
from stoker.engine.tiers.weights import WeightFlow
from stoker.observe.limits import num_cores

_PIECE_BYTES = TierSchedule(units=(), placements=(), micro_batches=1).piece_bytes


class Assembly:
    """The parts of a trainer, and the slab that gradients and kept inputs share, which grows when batches do."""

    def __init__(
        self,
        parts: Parts,
        executor: Executor,
        *,
        slab: HostSlab | None,
        flash: FlashFile | None,
        budgets: TierBudgets | None,
        pin: bool,
        fixed_dram_bytes: int,
        notice: Callable[[str], None],
    ) -> None:
        self.parts, self.executor, self.flash = parts, executor, flash
        self._slab, self._budgets, self._pin = slab, budgets, pin
        self._fixed_dram_bytes, self._notice = fixed_dram_bytes, notice
        self._shared: HostSlab | None = None
        self._shared_layout: SharedLayout | None = None
        self._told_pageable = False

    @property
    def schedule(self) -> TierSchedule:
        return self.parts.schedule

    @property
    def homes(self) -> Sequence[UnitHome]:
        return self.parts.homes

    @property
    def host_bytes(self) -> int:
        """Host memory that the tiers hold now."""
        return sum(slab.num_bytes for slab in (self._slab, self._shared) if slab is not None)

    def reserve(self, boundary_bytes: int, micro_batches: int) -> None:
        """Room in DRAM for gradients and `micro_batches` inputs of at most `boundary_bytes` each.

        The first step decides and larger ones grow it. Raises RunError ST460.
        """
        homes = self.homes
        inner = range(1, len(homes) - 1)
        each = aligned(boundary_bytes, 256) * micro_batches
        ins = [each if u in inner and homes[u].place.activations != "hbm" else 0 for u in range(len(homes))]
        outs = [home.layout.grad_bytes if home.grads_on_host else 0 for home in homes]
        layout = share_slab(ins, outs)
        if self._shared is not None and layout.num_bytes <= self._shared.num_bytes and self._fits(ins):
            return
        if not layout.num_bytes:
            return
        self.executor.catch_up()  # gradients that are still needed lie in the present slab
        if self._shared is not None:
            self._shared.close()
            self._shared = None
        budget = self._budgets.dram_bytes if self._budgets else None
        left = None if budget is None else budget - self._fixed_dram_bytes
        require_dram(layout.num_bytes, left)
        self._shared = HostSlab(layout.num_bytes, pin=self._pin)
        self.tell_pageable(self._shared)
        self._shared_layout = layout
        for home, place in zip(homes, layout.grads, strict=True):
            home.host_grads = None if place is None else self._shared.tensor[place : place + home.layout.grad_bytes]
            home.grads_taken = home.grads_ready = None
        self.parts.boundaries.use_slab(self._shared, layout, boundary_bytes)

    def tell_pageable(self, slab: HostSlab) -> None:
        """Say once that CUDA did not pin the memory: slower, never wrong."""
        if self._pin and not slab.pinned and not self._told_pageable:
            self._told_pageable = True
            self._notice(
                _("{size} of host memory could not be pinned: copies will be several times slower").format(
                    size=format_bytes(slab.num_bytes)
                )
            )

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """While open, the whole model computes on the device: units outside the blocks are in, blocks come and go."""
        weights, program = self.parts.weights, self.parts.program
        last = len(self.homes) - 1
        for unit in (0, last):
            weights.use(unit)
        handles = []
        blocks: Sequence[Any] = program.blocks if isinstance(program, HuggingFaceProgram) else program.modules[1:-1]  # type: ignore[attr-defined]
        for index, block in enumerate(blocks):
            unit = index + 1
            handles.append(block.register_forward_pre_hook(lambda _m, _a, unit=unit: self._bring(unit)))
            handles.append(block.register_forward_hook(lambda _m, _a, _o, unit=unit: weights.used(unit)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for unit in (0, last):
                weights.used(unit)
            weights.park()

    def bring_home(self, home: UnitHome) -> None:
        """The unit's parameters into ordinary host memory, one unit at a time."""
        if not home.layout.weight_bytes:
            return
        weights = self.parts.weights
        source = home.host_weights if home.device_weights is None else home.device_weights
        if source is None:
            weights.use(home.index)
            source = weights.land(home.index)
            self.parts.lanes.drain()
        own = source[: home.layout.weight_bytes].to("cpu", copy=True)
        weights.forget(home.index)
        home.layout.bind(own)

    def close(self) -> None:
        """Threads, scratch space and pinned pages go; streamed weights stay in DRAM or, from flash, return there."""
        self.parts.updater.close()
        self.parts.lanes.drain()
        if self.flash is not None:
            self.flash.close()
        for slab in (self._slab, self._shared):
            if slab is not None:
                slab.close()

    def _bring(self, unit: int) -> None:
        self.parts.weights.use(unit)
        if unit + 1 < len(self.homes) - 1:
            self.parts.weights.request(unit + 1)

    def _fits(self, ins: Sequence[int]) -> bool:
        """Whether inputs of `ins` bytes fit where the present layout puts them."""
        known = self._shared_layout
        assert known is not None
        outs = [home.layout.grad_bytes if home.grads_on_host else 0 for home in self.homes]
        if not any(ins):
            return True
        starts = [place for place in known.inputs if place is not None]
        room = starts[1] - starts[0] if len(starts) > 1 else known.num_bytes - sum(map(aligned, outs))
        return bool(starts) and max(ins) <= room


def lay_out(program: Program, groups: Mapping[int, int], piece_bytes: int) -> list[UnitLayout]:
    """Layouts of the program's units; parameters are numbered in the order of `program.root.parameters()`."""
    learning = [p for p in program.root.parameters() if p.requires_grad]
    order = {id(p): index for index, p in enumerate(learning)}
    return [
        lay_out_unit(name, params, order=order, groups=groups, piece_bytes=piece_bytes)
        for name, params in zip(program.cut.names, program.cut.params, strict=True)
    ]


def assemble(
    program: Program,
    *,
    groups: Mapping[int, int],
    device: torch.device,
    schedule: TierSchedule | Callable[[Sequence[UnitSpec]], TierSchedule] | None,
    budgets: TierBudgets | None,
    micro_batches: int,
    boundary_bytes: int,
    nvme_dir: Path | None,
    seed: int,
    autocast: Callable[[], AbstractContextManager[Any]],
    notice: Callable[[str], None],
    flash_port: FlashPort | None,
    lanes: Lanes | None,
) -> Assembly:
    """The parts, their memory taken and the model moved into it. Raises RunError ST460, ST461, ST462, ST466."""
    layouts, schedule = _choose(program, groups, schedule, budgets, micro_batches, boundary_bytes)
    homes = place_units(layouts, schedule)
    sizes = tier_sizes(homes, schedule)
    _require_room(sizes, budgets)
    flash = None
    if sizes.nvme:
        limit = budgets.nvme_bytes if budgets else None
        flash = FlashFile(nvme_dir or Path.cwd(), sizes.nvme, budget_bytes=limit, port=flash_port, notice=notice)
    pin = device.type == "cuda"
    slab = HostSlab(sizes.dram, pin=pin) if sizes.dram else None
    parts = _build(program, schedule, homes, slab, flash, device, lanes or lanes_for(device), autocast)
    assembly = Assembly(
        parts,
        Executor(parts, seed=seed),
        slab=slab,
        flash=flash,
        budgets=budgets,
        pin=pin,
        fixed_dram_bytes=sizes.dram,
        notice=notice,
    )
    if slab is not None:
        assembly.tell_pageable(slab)
    parts.make_room = assembly.reserve
    if boundary_bytes:
        assembly.reserve(boundary_bytes, micro_batches)
    return assembly


def _choose(
    program: Program,
    groups: Mapping[int, int],
    schedule: TierSchedule | Callable[[Sequence[UnitSpec]], TierSchedule] | None,
    budgets: TierBudgets | None,
    micro_batches: int,
    boundary_bytes: int,
) -> tuple[list[UnitLayout], TierSchedule]:
    """Layouts cut as the schedule says, and the schedule: given, made from the units, by the rule, or all resident."""
    layouts = lay_out(program, groups, _PIECE_BYTES)
    specs = specs_of(layouts, boundary_bytes)
    if callable(schedule):
        chosen = schedule(specs)
    elif schedule is not None:
        chosen = schedule
    elif budgets is not None:
        chosen = schedule_for(specs, budgets, micro_batches=micro_batches)
    else:
        chosen = all_on_device(specs, micro_batches)
    if chosen.piece_bytes != _PIECE_BYTES:
        layouts = lay_out(program, groups, chosen.piece_bytes)
    return layouts, chosen


def _require_room(sizes: TierSizes, budgets: TierBudgets | None) -> None:
    if budgets is not None and sizes.hbm > budgets.hbm_bytes:
        raise _too_large_for_device(sizes.hbm, budgets.hbm_bytes)
    if sizes.dram:
        require_dram(sizes.dram, budgets.dram_bytes if budgets else None)


def _build(
    program: Program,
    schedule: TierSchedule,
    homes: Sequence[UnitHome],
    slab: HostSlab | None,
    flash: FlashFile | None,
    device: torch.device,
    lanes: Lanes,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Parts:
    count, size, weight_count, weight_size = staging_bytes(homes, schedule)
    staging = [slab.take(size) for _i in range(count)] if slab is not None else []
    weight_staging = [slab.take(weight_size) for _i in range(weight_count)] if slab is not None else []
    allocate(homes, slab, flash, device)
    _buffers_to(program, device)
    outer = (0, len(homes) - 1)
    buffers = schedule.prefetch_units + 1
    state = FlashState(homes, flash, staging) if flash is not None and staging else None
    num_params = sum(len(list(home.layout.slots)) for home in homes)
    return Parts(
        program=program,
        schedule=schedule,
        homes=homes,
        lanes=lanes,
        device=device,
        weights=WeightFlow(homes, lanes, device, num_buffers=buffers, outer=outer, flash=flash, staging=weight_staging),
        updater=UnitUpdater(homes, lanes, device, ring_pieces=schedule.ring_pieces, threads=_threads(), flash=state),
        boundaries=BoundaryStore(homes, lanes, device),
        gradients=GradientFlow(homes, lanes, device, num_params=num_params, outer=outer),
        flash_state=state,
        autocast=autocast,
    )


def _threads() -> int:
    return max(1, min(num_cores(), int(os.environ.get("OMP_NUM_THREADS") or 1 << 10)))


def _buffers_to(program: Program, device: torch.device) -> None:
    """Buffers (rotary frequencies, batch statistics) are small: always on the device."""
    for module in program.root.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = pytree.tree_map(lambda tensor: tensor.to(device), buffer)


def _too_large_for_device(wanted: int, limit: int) -> RunError:
    return RunError(
        "ST466",
        _("the schedule keeps {wanted} on the device for good; its budget is {limit}").format(
            wanted=format_bytes(wanted), limit=format_bytes(limit)
        ),
        place="hardware.hbm_gb",
        fix=_("let more leave the GPU (run.placement: auto), or raise the cap"),
    )
