"""One unit's parameters as flat buffers: offsets, pieces of state, and the views that bind parameters to a buffer.

A unit's weight buffer holds what learns first (16-bit parameters, then fp32 ones: adapters, batch norms), then what is
frozen, in whatever format (4-bit codes too). State has 10 bytes a 16-bit parameter (two fp32 moments and the 16-bit
remainder of the master) and 8 an fp32 one, cut into pieces of even size; a piece lies together, moments then
remainder, so that it crosses a link as one copy and starts at a disk block.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from stoker.core.schedule import UnitSpec

ALIGN_BYTES = 4096  # O_DIRECT's block, and more than any kernel asks for
_ALIGN_ELEMENTS = 2048  # 2048 x 2 bytes of remainder = one block
_PARAM_ELEMENTS = 128  # each parameter starts at 256 bytes


def aligned(count: int, to: int = ALIGN_BYTES) -> int:
    """`count` rounded up to a multiple of `to`."""
    return -(-count // to) * to


@dataclass(slots=True, kw_only=True)
class Slot:
    """A parameter that learns, of `count` elements, also while it is away and has no storage.

    `index`: its place among all of them; `group`: of hyperparameters.

    `steps`: updates it has had; a step in which it got no gradient does not count, as in torch.
    """

    index: int
    name: str
    param: nn.Parameter
    count: int
    group: int
    start: int = 0
    steps: int = 0

    @property
    def stop(self) -> int:
        return self.start + self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Elements [start, stop) of a block; its state lies at `offset` bytes of the unit's state."""

    start: int
    stop: int
    offset: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Elements [start, stop) of a block with the same scalars in this step; `step`: number of the update, from 1."""

    start: int
    stop: int
    group: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Trainable parameters of one dtype. Offsets in bytes into the unit's weight and gradient buffers."""

    dtype: torch.dtype
    slots: tuple[Slot, ...]
    num_elements: int
    weight_offset: int
    grad_offset: int
    pieces: tuple[Piece, ...]

    @property
    def narrow(self) -> bool:
        """Whether a remainder completes the weight to an fp32 master."""
        return self.dtype == torch.bfloat16

    def of(self, buffer: torch.Tensor, offset: int) -> torch.Tensor:
        """The block's elements [num_elements] in a byte buffer."""
        size = self.num_elements * self.dtype.itemsize
        return buffer[offset : offset + size].view(self.dtype)

    def state_views(self, buffer: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """(first moment, second moment, remainder or None) of a piece of `count` elements in its byte buffer."""
        first, second = buffer[: 4 * count].view(torch.float32), buffer[4 * count : 8 * count].view(torch.float32)
        rest = buffer[8 * count : 10 * count].view(torch.int16) if self.narrow else None
        return first, second, rest

    def runs(self, absent: frozenset[int]) -> tuple[Run, ...]:
        """Neighbours with equal group and step count joined; parameters without a gradient (`absent`) left out."""
        found: list[Run] = []
        for slot in self.slots:
            if slot.index in absent:
                continue
            last = found[-1] if found else None
            step = slot.steps + 1
            touching = last is not None and slot.start - last.stop < _PARAM_ELEMENTS
            if last is not None and touching and (last.group, last.step) == (slot.group, step):
                found[-1] = Run(start=last.start, stop=slot.stop, group=slot.group, step=step)
            else:
                found.append(Run(start=slot.start, stop=slot.stop, group=slot.group, step=step))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A parameter that does not learn, at `offset` bytes of the unit's weight buffer."""

    name: str
    param: nn.Parameter
    shape: torch.Size
    dtype: torch.dtype
    offset: int

    @property
    def num_bytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitLayout:
    """Sizes and offsets of one unit. `trainable_bytes`: the head of the weight buffer, which updates change."""

    name: str
    blocks: tuple[Block, ...]
    frozen: tuple[Frozen, ...]
    trainable_bytes: int
    weight_bytes: int
    grad_bytes: int
    state_bytes: int
    shapes: Mapping[int, torch.Size] = field(default_factory=dict)

    @property
    def slots(self) -> Iterator[Slot]:
        return (slot for block in self.blocks for slot in block.slots)

    @property
    def names(self) -> Iterator[str]:
        """Of its parameters, those that learn first."""
        yield from (slot.name for slot in self.slots)
        yield from (held.name for held in self.frozen)

    @property
    def num_trainable(self) -> int:
        return sum(slot.count for slot in self.slots)

    @property
    def pieces(self) -> Iterator[tuple[Block, Piece]]:
        return ((block, piece) for block in self.blocks for piece in block.pieces)

    def spec(self, boundary_bytes: int) -> UnitSpec:
        """What a placement is chosen from; `boundary_bytes`: kept input of one micro-batch."""
        return UnitSpec(
            name=self.name,
            weight_bytes=self.weight_bytes,
            grad_bytes=self.grad_bytes,
            state_bytes=self.state_bytes,
            trainable_params=self.num_trainable,
            boundary_bytes=boundary_bytes,
        )

    @torch.no_grad()
    def fill(self, buffer: torch.Tensor) -> None:
        """Copy the parameters as they are into `buffer`."""
        for view, param in self._views(buffer):
            view.copy_(param.data)

    def bind(self, buffer: torch.Tensor) -> None:
        """Make every parameter a view into `buffer`, which may be on any device."""
        for view, param in self._views(buffer):
            param.data = view

    def unbind(self) -> None:
        """Leave every parameter without storage, so that a use of weights that are not there fails loudly."""
        for slot in self.slots:
            slot.param.data = torch.empty(0, dtype=slot.param.dtype)
        for held in self.frozen:
            held.param.data = torch.empty(0, dtype=held.dtype)

    def grad_views(self, buffer: torch.Tensor, *, wide: bool = False) -> Iterator[tuple[Slot, torch.Tensor]]:
        """(slot, its gradient shaped as the parameter) in a gradient buffer; `wide`: every element fp32."""
        for block in self.blocks:
            if wide:
                flat = buffer[self._wide_offset(block) :][: 4 * block.num_elements].view(torch.float32)
            else:
                flat = block.of(buffer, block.grad_offset)
            for slot in block.slots:
                yield (
                    slot,
                    flat[slot.start : slot.start + self.shapes[slot.index].numel()].view(self.shapes[slot.index]),
                )

    @property
    def wide_grad_bytes(self) -> int:
        """Size of an fp32 gradient buffer."""
        return 4 * sum(block.num_elements for block in self.blocks)

    def _wide_offset(self, block: Block) -> int:
        return 4 * sum(other.num_elements for other in self.blocks[: self.blocks.index(block)])

    def _views(self, buffer: torch.Tensor) -> Iterator[tuple[torch.Tensor, nn.Parameter]]:
        for block in self.blocks:
            flat = block.of(buffer, block.weight_offset)
            for slot in block.slots:
                shape = self.shapes[slot.index]
                yield flat[slot.start : slot.start + shape.numel()].view(shape), slot.param
        for held in self.frozen:
            part = buffer[held.offset : held.offset + held.num_bytes]
            yield part.view(held.dtype).view(held.shape), held.param


def lay_out_unit(
    name: str, params: Sequence[tuple[str, nn.Parameter]], *, order: Mapping[int, int], groups: Mapping[int, int],
    piece_bytes: int,
) -> UnitLayout:  # fmt: skip
    """The layout of `params`. `order`, `groups`: of id(parameter) to its index and group. Raises TypeError for a
    trainable parameter that is neither bf16 nor fp32."""
    learning = [(label, p) for label, p in params if p.requires_grad]
    for label, param in learning:
        if param.dtype not in (torch.bfloat16, torch.float32):
            raise TypeError(f"{label}: trainable parameters are bf16 or fp32, not {param.dtype}")
    blocks: list[Block] = []
    weights = grads = state = 0
    for dtype in (torch.bfloat16, torch.float32):
        slots = [
            Slot(index=order[id(p)], name=label, param=p, count=p.numel(), group=groups[id(p)])
            for label, p in learning
            if p.dtype == dtype
        ]
        if not slots:
            continue
        slots.sort(key=lambda slot: (slot.group, slot.index))
        size = _place(slots)
        pieces = tuple(_pieces(size, 10 if dtype == torch.bfloat16 else 8, piece_bytes, state))
        blocks.append(
            Block(
                dtype=dtype,
                slots=tuple(slots),
                num_elements=size,
                weight_offset=weights,
                grad_offset=grads,
                pieces=pieces,
            )
        )
        weights += size * dtype.itemsize
        grads += size * dtype.itemsize
        state = pieces[-1].offset + pieces[-1].num_bytes
    trainable = weights
    frozen = []
    for label, param in params:
        if not param.requires_grad:
            held = Frozen(name=label, param=param, shape=param.shape, dtype=param.dtype, offset=weights)
            frozen.append(held)
            weights = aligned(weights + held.num_bytes, 256)
    return UnitLayout(
        name=name,
        blocks=tuple(blocks),
        frozen=tuple(frozen),
        trainable_bytes=trainable,
        weight_bytes=aligned(weights),
        grad_bytes=grads,
        state_bytes=state,
        shapes={order[id(p)]: p.shape for _label, p in learning},
    )


def _place(slots: Iterable[Slot]) -> int:
    place = 0
    for slot in slots:
        slot.start = place
        place = aligned(slot.stop, _PARAM_ELEMENTS)
    return aligned(place, _ALIGN_ELEMENTS)


def _pieces(size: int, bytes_each: int, piece_bytes: int, offset: int) -> Iterator[Piece]:
    """Even pieces: the last one is not a stump that leaves the link idle."""
    count = max(1, -(-size * bytes_each // max(piece_bytes, 1)))
    step = aligned(-(-size // count), _ALIGN_ELEMENTS)
    for start in range(0, size, step):
        stop = min(start + step, size)
        length = (stop - start) * bytes_each
        yield Piece(start=start, stop=stop, offset=offset, num_bytes=length)
        offset += length
