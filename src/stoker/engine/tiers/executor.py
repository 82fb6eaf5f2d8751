"""One optimizer step, layer by layer: every micro-batch passes a unit before any passes the next.

Forward keeps each unit's inputs and nothing else; backward computes a unit again from them, with the same draws, and
sums its gradients in fp32. So weights cross the link twice a step and gradients once, however many micro-batches there
are, and only one unit's activations stand at a time. An update that waits for the norm runs in the next forward, just
ahead of its unit; without clipping it runs in backward as soon as the unit's gradient is whole.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from stoker.core.schedule import TierSchedule
from stoker.engine.ordering import keyed_seed
from stoker.engine.tiers.boundaries import BoundaryStore
from stoker.engine.tiers.clock import StepClock
from stoker.engine.tiers.flash_state import FlashState
from stoker.engine.tiers.gradients import GradientFlow
from stoker.engine.tiers.homes import UnitHome
from stoker.engine.tiers.lanes import Lanes, copy
from stoker.engine.tiers.ring import RingSlot
from stoker.engine.tiers.units import Call, Program
from stoker.engine.tiers.update import Pending, UnitUpdater
from stoker.engine.tiers.weights import WeightFlow


@dataclass(slots=True, kw_only=True)
class Parts:
    """What a step works with. `make_room`(bytes of the largest input, micro-batches): in DRAM."""

    program: Program
    schedule: TierSchedule
    homes: Sequence[UnitHome]
    lanes: Lanes
    device: torch.device
    weights: WeightFlow
    updater: UnitUpdater
    boundaries: BoundaryStore
    gradients: GradientFlow
    flash_state: FlashState | None
    autocast: Callable[[], AbstractContextManager[Any]]
    make_room: Callable[[int, int], None] = lambda _size, _count: None


class Executor:
    """Runs forward and backward of a step and the updates that are due. `seed`: of every draw."""

    def __init__(self, parts: Parts, *, seed: int) -> None:
        self.parts, self._seed = parts, seed
        self.clock = StepClock(parts.device)
        self._count = len(parts.homes)
        self._calls: list[tuple[Call, ...]] = []
        self._pending: Pending | None = None
        self._immediate: Pending | None = None
        self._owed: set[int] = set()
        learning = [home.index for home in parts.homes if home.learns]
        self._lowest = min(learning)
        self._side_keys = sorted(set(parts.program.cut.side_keys.values()))

    def run(
        self, micro_batches: Sequence[Any], *, step: int, factor: float, unscale: float, immediate: Pending | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(summed loss, gradient norm), on the device. The loss times `factor` is what is differentiated.

        `immediate`: the update to make in backward, where no norm is waited for.
        """
        parts, n = self.parts, self._count
        self._step, self._factor, self._unscale, self._immediate = step, factor, unscale, immediate
        parts.gradients.start(len(micro_batches))
        parts.boundaries.start()
        self.clock.begin()
        with self.clock.phase("forward"):
            hidden = self._forward_prelude(micro_batches)
            for unit in range(1, n - 1):
                self._forward_block(unit, hidden)
        with self.clock.phase("loss"):
            total, grads = self._final(micro_batches, hidden)
        if immediate is not None and not bool(torch.isfinite(total)):
            return total, total  # before any weight changes
        with self.clock.phase("backward"):
            self._backward(micro_batches, grads)
            norm = parts.gradients.norm()
        return total, norm

    def decide(self, pending: Pending | None) -> None:
        """The update of the step that ran: made in the next forward, or by `flush`. None: the step changes nothing."""
        self._pending = pending
        if pending is None:
            return
        self._owed = {home.index for home in self.parts.homes if home.learns}
        for home in self.parts.homes:
            if home.on_cpu:
                home.update_done = self.parts.updater.in_dram(home.index, pending)
        self._ahead(range(self.parts.schedule.prefetch_units + 1))  # the device need not wait for the next batch

    def forget(self) -> None:
        """Nothing is owed any more, whatever was: a whole state is about to be loaded."""
        for home in self.parts.homes:
            if home.update_done is not None:
                home.update_done.exception()
                home.update_done = None
            home.grads_ready = home.grads_taken = None
        self._owed.clear()
        self._pending = None
        self.parts.weights.park()
        if self.parts.flash_state is not None:
            self.parts.flash_state.settle()

    def catch_up(self) -> None:
        """Make every update that is owed, and wait for it."""
        for unit in sorted(self._owed):
            self._prepare(unit, wait=True)
        self.parts.lanes.drain()

    def flush(self) -> None:
        """Make every update that is owed, and wait until all of it lies where it lives."""
        self.catch_up()
        self.parts.weights.park()
        if self.parts.flash_state is not None:
            self.parts.flash_state.settle()

    def _prepare(self, unit: int, *, wait: bool) -> None:
        """Update `unit` if that is owed, and start bringing its weights in."""
        parts = self.parts
        home = parts.homes[unit]
        if unit in self._owed:
            if home.on_cpu:
                if not self._land_cpu_update(home, wait=wait):
                    return
            else:
                assert self._pending is not None
                self._update_on_device(home, None, self._pending)
            self._owed.discard(unit)
        parts.weights.request(unit)

    def _land_cpu_update(self, home: UnitHome, *, wait: bool) -> bool:
        assert home.update_done is not None
        if not (wait or home.update_done.done()):
            return False
        home.update_done.result()
        home.update_done = None
        self._renew_from_host(home)
        return True

    def _renew_from_host(self, home: UnitHome) -> None:
        """The device's copy of weights that were updated in DRAM."""
        parts = self.parts
        if home.streamed:
            parts.weights.forget(home.index)
            return
        assert home.host_weights is not None and home.device_weights is not None
        size, host, device = home.layout.trainable_bytes, home.host_weights, home.device_weights
        home.ready = parts.lanes.up.submit(lambda: copy(device[:size], host[:size]), after=[home.last_use])

    def _update_on_device(self, home: UnitHome, grads: torch.Tensor | None, pending: Pending) -> None:
        parts = self.parts
        weights = parts.weights.land(home.index)
        if grads is None:
            grads = home.device_grads
        after = [home.ready, home.last_use, home.grads_ready]
        home.ready = parts.updater.on_device(home.index, weights, grads, pending, after)
        parts.weights.write_back(home.index, home.ready)

    def _use(self, units: Sequence[int]) -> None:
        with self.clock.wait():
            for unit in units:
                self._prepare(unit, wait=True)
            for unit in units:
                self.parts.weights.use(unit)

    def _ahead(self, units: Sequence[int]) -> None:
        """Prepare what comes next, once the work of the present unit is queued."""
        with self.clock.wait():
            for unit in units:
                inner = 0 < unit < self._count - 1
                if inner or (0 <= unit < self._count and not self.parts.homes[unit].streamed):
                    self._prepare(unit, wait=False)
            if self.parts.flash_state is not None:
                self.parts.flash_state.read_ahead()

    def _forward_prelude(self, micro_batches: Sequence[Any]) -> list[torch.Tensor | None]:
        parts, units = self.parts, self.parts.program.cut.prelude_units
        self._use(units)
        hidden: list[torch.Tensor | None] = []
        self._calls = []
        for micro, batch in enumerate(micro_batches):
            self._draws(micro, "embedding")
            with torch.no_grad(), parts.autocast():
                prelude = parts.program.prelude(batch)
            hidden.append(prelude.hidden)
            self._calls.append(prelude.calls)
        for unit in units:
            parts.weights.used(unit)
        parts.make_room(max(h.numel() * h.element_size() for h in hidden if h is not None), len(hidden))
        self._ahead(range(1, 1 + parts.schedule.prefetch_units))
        return hidden

    def _forward_block(self, unit: int, hidden: list[torch.Tensor | None]) -> None:
        parts = self.parts
        self._use((unit,))
        for micro, given in enumerate(hidden):
            assert given is not None
            if unit >= self._lowest:
                parts.boundaries.keep(unit, micro, given)
            self._draws(micro, unit)
            with torch.no_grad(), parts.autocast():
                hidden[micro] = parts.program.block(unit - 1, given, self._calls[micro][unit - 1])
        parts.weights.used(unit)
        self._ahead(range(unit + 1, unit + 1 + parts.schedule.prefetch_units))

    def _final(
        self, micro_batches: Sequence[Any], hidden: list[torch.Tensor | None]
    ) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        """Loss and its gradient with respect to the last block's outputs; the final unit's gradient is closed."""
        parts, n = self.parts, self._count
        units = parts.program.cut.epilogue_units
        self._use(units)
        self._pending = None  # every unit has had its update
        self._expect_flash()
        total = torch.zeros((), device=parts.device)
        grads: list[torch.Tensor | None] = []
        below = self._lowest < n - 1
        for micro, batch in enumerate(micro_batches):
            given, hidden[micro] = hidden[micro], None
            assert given is not None
            leaf = given.detach().requires_grad_(below)
            self._draws(micro, "final")
            with torch.enable_grad(), parts.autocast():
                loss = parts.program.epilogue(batch, leaf)
            torch.autograd.backward(loss * self._factor)
            total += loss.detach()
            grads.append(leaf.grad)
            for unit in units:
                parts.gradients.add(unit, last=unit == n - 1)
        for unit in units:
            parts.weights.used(unit)
        self._close(n - 1)
        return total, grads

    def _backward(self, micro_batches: Sequence[Any], grads: list[torch.Tensor | None]) -> None:
        parts, count = self.parts, len(micro_batches)
        order = [(u, m) for u in range(self._count - 2, max(self._lowest, 1) - 1, -1) for m in range(count)]
        sides: list[dict[int, torch.Tensor]] = [{} for _micro in micro_batches]
        for place, (unit, micro) in enumerate(order):
            if micro == 0:
                self._use((unit,))
                self._ahead(range(unit - 1, unit - 1 - parts.schedule.prefetch_units, -1))
            for later in order[place : place + 2]:
                parts.boundaries.request(*later)
            grads[micro] = self._backward_block(unit, micro, grads[micro], sides[micro])
            parts.gradients.add(unit, last=True)
            if micro == count - 1:
                parts.weights.used(unit)
                self._close(unit)
        if self._lowest == 0:
            self._backward_prelude(micro_batches, grads, sides)

    def _backward_block(
        self, unit: int, micro: int, grad: torch.Tensor | None, sides: dict[int, torch.Tensor]
    ) -> torch.Tensor | None:
        parts, cut = self.parts, self.parts.program.cut
        with self.clock.wait():
            kept = parts.boundaries.fetch(unit, micro)
        leaf = kept.detach().requires_grad_(unit > self._lowest)
        call = self._calls[micro][unit - 1]
        leaves = list(call.leaves)
        learning = {}
        for place, tensor in enumerate(leaves):
            key = cut.side_keys.get((unit - 1, place))
            if key is not None and self._lowest == 0:
                leaves[place] = learning[place] = tensor.detach().requires_grad_(True)
        self._draws(micro, unit)
        with torch.enable_grad(), parts.autocast():
            output = parts.program.block(unit - 1, leaf, Call(tuple(leaves), call.spec))
        torch.autograd.backward(output, grad)
        for place, tensor in learning.items():
            key = cut.side_keys[unit - 1, place]
            if tensor.grad is not None:
                sides[key] = sides[key] + tensor.grad if key in sides else tensor.grad
        parts.boundaries.drop(unit, micro)
        return leaf.grad

    def _backward_prelude(
        self, micro_batches: Sequence[Any], grads: list[torch.Tensor | None], sides: list[dict[int, torch.Tensor]]
    ) -> None:
        parts, cut = self.parts, self.parts.program.cut
        self._use(cut.prelude_units)
        for micro, batch in enumerate(micro_batches):
            self._draws(micro, "embedding")
            with torch.enable_grad(), parts.autocast():
                prelude = parts.program.prelude(batch)
            tensors = [prelude.hidden]
            wanted = [grads[micro]]
            for key in self._side_keys:
                block, place = next(at for at, known in cut.side_keys.items() if known == key)
                if key in sides[micro]:
                    tensors.append(prelude.calls[block].leaves[place])
                    wanted.append(sides[micro][key])
            torch.autograd.backward(tensors, wanted)
            grads[micro] = None
            parts.gradients.add(0, last=True)
        for unit in cut.prelude_units:
            parts.weights.used(unit)
        self._close(0)

    def _close(self, unit: int) -> None:
        """The gradient of `unit` is whole."""
        parts = self.parts
        home = parts.homes[unit]
        buffer, slot = parts.gradients.close(unit, unscale=self._unscale)
        if buffer is None:
            return
        with self.clock.wait():
            self._settle(home, buffer, slot)

    def _settle(self, home: UnitHome, buffer: torch.Tensor, slot: RingSlot | None) -> None:
        """A whole gradient goes where it lives, or into the update right away."""
        parts, unit = self.parts, home.index
        if self._immediate is None:
            parts.gradients.store(unit, buffer, slot)
            return
        if home.on_cpu:
            parts.gradients.store(unit, buffer, slot)
            home.update_done = parts.updater.in_dram(unit, self._immediate)
            self._owed.add(unit)
            return
        self._update_on_device(home, buffer, self._immediate)
        if slot is not None:
            slot.busy = [home.grads_taken]

    def _expect_flash(self) -> None:
        """Flash is read ahead from here on, in the order in which the next updates come."""
        if self.parts.flash_state is not None:
            order = range(self._count)
            self.parts.flash_state.expect(order[::-1] if self._immediate is not None else order)

    def _draws(self, micro: int, unit: int | str) -> None:
        torch.manual_seed(keyed_seed(self._seed, self._step, micro, unit))
