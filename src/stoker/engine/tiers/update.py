"""The optimizer step of one unit, wherever its state lives: on the device through a ring of pieces, or in DRAM.

Both lanes call the same arithmetic on the same pieces (`adamw.step_span`), so the tier changes no bit. On the device a
piece goes up, is updated and goes down on three streams; it waits for the previous step's write-back of itself, never
for its neighbour's, or the pieces would go one by one.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from stoker.engine.tiers.adamw import Rule, Scalars, Span, scalars_of, step_in_dram, step_span
from stoker.engine.tiers.flash_state import FlashState, Staged
from stoker.engine.tiers.homes import UnitHome
from stoker.engine.tiers.lanes import Lanes, Mark
from stoker.engine.tiers.layout import Block, Piece, Run
from stoker.engine.tiers.ring import Ring


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An update that is decided but not yet made everywhere. `rates`, `decays`: by group. `grad_scale`: clipping."""

    rates: tuple[float, ...]
    decays: tuple[float, ...]
    grad_scale: float
    rule: Rule


class UnitUpdater:
    """Applies `Pending` to units. `threads`: of the DRAM lane."""

    def __init__(
        self,
        homes: Sequence[UnitHome],
        lanes: Lanes,
        device: torch.device,
        *,
        ring_pieces: int,
        threads: int,
        flash: FlashState | None,
    ) -> None:
        self._homes, self._lanes, self._flash = homes, lanes, flash
        size = max((_slot_bytes(home) for home in homes if _streams_state(home)), default=0)
        self._ring = Ring(ring_pieces, size, device) if size else None
        self.ring_bytes = ring_pieces * size
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="stoker-update")
        before = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        list(self._pool.map(lambda _i: None, range(threads)))
        torch.set_num_threads(before)

    def on_device(
        self,
        unit: int,
        weights: torch.Tensor,
        grads: torch.Tensor | None,
        pending: Pending,
        after: Sequence[Mark | None],
    ) -> Mark | None:
        """Queue the update of `unit`, whose weights and (unless they come up with the state) gradients are on the
        device; returns the mark behind which the weights are new."""
        home, lanes = self._homes[unit], self._lanes
        plan = _runs(home, pending)
        mark: Mark | None = None
        for number, (block, piece) in enumerate(home.layout.pieces):
            if grads is not None and home.device_state is not None:
                state = home.device_state[piece.offset : piece.offset + piece.num_bytes]
                work = _work(block, piece, plan[id(block)], weights, _grad_of(block, piece, grads), state)
                mark = lanes.update.submit(work, after=after, uses=(grads, weights))
            else:
                mark = self._piece_through_ring(home, number, block, piece, plan[id(block)], weights, grads, after)
        home.grads_taken = mark
        return mark

    def in_dram(self, unit: int, pending: Pending) -> "Future[None]":
        """Start the update of `unit` in DRAM behind those already started."""
        home = self._homes[unit]
        return self._worker.submit(self._step_in_dram, home, _runs(home, pending), home.grads_ready)

    def close(self) -> None:
        """Wait for the threads."""
        self._worker.shutdown(wait=True)
        self._pool.shutdown(wait=True)

    def _piece_through_ring(
        self,
        home: UnitHome,
        number: int,
        block: Block,
        piece: Piece,
        runs: Sequence[tuple[Run, Scalars]],
        weights: torch.Tensor,
        grads: torch.Tensor | None,
        after: Sequence[Mark | None],
    ) -> Mark | None:
        lanes, ring = self._lanes, self._ring
        assert ring is not None
        slot = ring.take()
        staged: Staged | None = None
        host: torch.Tensor | None = None
        grad_bytes: torch.Tensor | None = None
        host_grad: torch.Tensor | None = None
        if home.device_state is not None:
            state = home.device_state[piece.offset : piece.offset + piece.num_bytes]
        else:
            state = slot.buffer[: piece.num_bytes]
            if home.host_state is not None:
                host = home.host_state[piece.offset : piece.offset + piece.num_bytes]
            else:
                assert self._flash is not None
                staged = self._flash.take(home.index, number)
                host = staged.tensor[: piece.num_bytes]
        if grads is None:
            size = (piece.stop - piece.start) * block.dtype.itemsize
            begin = block.grad_offset + piece.start * block.dtype.itemsize
            grad_bytes = slot.buffer[piece.num_bytes : piece.num_bytes + size]
            assert home.host_grads is not None
            host_grad = home.host_grads[begin : begin + size]
            grad = grad_bytes.view(block.dtype)
        else:
            grad = _grad_of(block, piece, grads)
        up = lanes.up.submit(
            _copies((state, host), (grad_bytes, host_grad)),
            after=[*slot.busy, home.state_written[number], None if host_grad is None else home.grads_ready],
        )
        done = lanes.update.submit(
            _work(block, piece, runs, weights, grad, state),
            after=[up, *after],  # of them that the gradient is whole: the state itself may come before
            uses=(weights,) if grads is None else (weights, grads),
        )
        if host is None:
            ring.free(slot, (done,))
            return done
        down = lanes.down.submit(_copies((host, state)), after=[done])
        ring.free(slot, (down,))
        if staged is not None and self._flash is not None:
            self._flash.give(staged, down)
        else:
            home.state_written[number] = down
        return done

    def _step_in_dram(
        self, home: UnitHome, plan: Mapping[int, Sequence[tuple[Run, Scalars]]], ready: Mark | None
    ) -> None:
        if ready is not None:
            ready.synchronize()
        assert home.host_weights is not None and home.host_grads is not None
        for number, (block, piece) in enumerate(home.layout.pieces):
            grad = _grad_of(block, piece, home.host_grads)
            staged = None
            if home.host_state is not None:
                state = home.host_state[piece.offset : piece.offset + piece.num_bytes]
            else:
                assert self._flash is not None
                staged = self._flash.take(home.index, number)
                state = staged.tensor[: piece.num_bytes]
            for span, scalars in _spans(block, piece, plan[id(block)], home.host_weights, grad, state):
                step_in_dram(span, scalars, self._run)
            if staged is not None and self._flash is not None:
                self._flash.give(staged, None)

    def _run(self, tasks: list[Callable[[], None]]) -> None:
        list(self._pool.map(lambda task: task(), tasks))


def _streams_state(home: UnitHome) -> bool:
    return home.learns and not home.on_cpu and (home.place.state != "hbm" or home.grads_on_host)


def _slot_bytes(home: UnitHome) -> int:
    return max(p.num_bytes + (p.stop - p.start) * b.dtype.itemsize for b, p in home.layout.pieces)


def _runs(home: UnitHome, pending: Pending) -> dict[int, list[tuple[Run, Scalars]]]:
    """Runs of each block with their scalars, by id(block); counts the update in the slots."""
    plan = {
        id(block): [
            (
                run,
                scalars_of(
                    pending.rule,
                    lr=pending.rates[run.group],
                    weight_decay=pending.decays[run.group],
                    step=run.step,
                    grad_scale=pending.grad_scale,
                ),
            )
            for run in block.runs(home.absent)
        ]
        for block in home.layout.blocks
    }
    for slot in home.layout.slots:
        slot.steps += slot.index not in home.absent
    return plan


def _grad_of(block: Block, piece: Piece, grads: torch.Tensor) -> torch.Tensor:
    return block.of(grads, block.grad_offset)[piece.start : piece.stop]


def _spans(
    block: Block,
    piece: Piece,
    runs: Sequence[tuple[Run, Scalars]],
    weights: torch.Tensor,
    grad: torch.Tensor,
    state: torch.Tensor,
) -> list[tuple[Span, Scalars]]:
    first, second, rest = block.state_views(state, piece.stop - piece.start)
    weight = block.of(weights, block.weight_offset)[piece.start : piece.stop]
    whole = Span(weight=weight, grad=grad, first=first, second=second, remainder=rest)
    found = []
    for run, scalars in runs:
        start, stop = max(run.start, piece.start), min(run.stop, piece.stop)
        if start < stop:
            found.append((whole.cut(start - piece.start, stop - piece.start), scalars))
    return found


def _work(
    block: Block,
    piece: Piece,
    runs: Sequence[tuple[Run, Scalars]],
    weights: torch.Tensor,
    grad: torch.Tensor,
    state: torch.Tensor,
) -> Callable[[], None]:
    def work() -> None:
        for span, scalars in _spans(block, piece, runs, weights, grad, state):
            step_span(span, scalars)

    return work


def _copies(*pairs: tuple[torch.Tensor | None, torch.Tensor | None]) -> Callable[[], None]:
    def work() -> None:
        for target, source in pairs:
            if target is not None and source is not None:
                target.copy_(source, non_blocking=True)

    return work
