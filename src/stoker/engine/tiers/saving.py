"""State in and out, independent of where it lives: by parameter name, a piece at a time, no pickle.

`model` holds weights under their Hugging Face names, `tiers` two moments and the master's remainder of each parameter
that learns. So a checkpoint of one placement goes on under any other, and saving needs one piece of extra memory.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.engine.checkpoint import StreamedTensor
from stoker.engine.loss_scale import LossScale
from stoker.engine.tiers.homes import UnitHome
from stoker.engine.tiers.layout import Block, Piece, Slot
from stoker.engine.tiers.trainer import TieredTrainer

_PARTS = ("exp_avg", "exp_avg_sq", "remainder")
Tensors = dict[str, torch.Tensor | StreamedTensor]


def capture_tiers(trainer: TieredTrainer, *, trainable_only: bool) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """(tensors by file and name, meta for JSON) after a flush. With `trainable_only` what learns, and the buffers."""
    trainer.flush()
    steps = {slot.name: slot.steps for home in trainer.assembly.homes for slot in home.layout.slots}
    meta = {"steps": trainer.steps, "updates": steps, "scaler": trainer.scaler.state() if trainer.scaler else None}
    return {"model": _weights(trainer, trainable_only), "tiers": _state(trainer)}, meta


def restore_tiers(
    trainer: TieredTrainer, files: Mapping[str, Mapping[str, torch.Tensor]], meta: Mapping[str, Any]
) -> None:
    """Put back what `capture_tiers` gave, under whatever placement. Raises RunError ST404 for another model's."""
    state = files["tiers"]
    load_weights(trainer, files["model"])
    for home in trainer.assembly.homes:
        for number, (block, piece) in enumerate(home.layout.pieces):
            buffer = _read(trainer, home, number, piece)
            _fill_piece(block, piece, buffer, state)
            _write(trainer, home, number, piece, buffer)
        for slot in home.layout.slots:
            slot.steps = int(meta["updates"][slot.name])
    if trainer.scaler is not None and meta["scaler"] is not None:
        trainer.scaler = LossScale.from_state(meta["scaler"])
    trainer.loaded(int(meta["steps"]))


def load_weights(trainer: TieredTrainer, weights: Mapping[str, torch.Tensor]) -> None:
    """Weights alone, and the buffers; what the optimizer remembers stays. Raises RunError ST404."""
    trainer.assembly.executor.forget()
    for home in trainer.assembly.homes:
        _load_weights(trainer, home, weights)
    for name, buffer in trainer.program.root.named_buffers():
        if name in weights:
            buffer.copy_(weights[name])


def _weights(trainer: TieredTrainer, trainable_only: bool) -> Tensors:
    root = trainer.program.root
    on_flash = [home for home in trainer.assembly.homes if home.flash_weights is not None]
    away = {name: home for home in on_flash for name in home.layout.names}
    names = {name for name, _p in root.named_parameters(remove_duplicate=False)}
    found: Tensors = {}
    for name, param in root.named_parameters():
        if trainable_only and not param.requires_grad:
            continue
        found[name] = _from_flash(trainer, away[name], name) if name in away else param.detach()
    for name, tensor in root.state_dict().items():
        if name not in names and not any(name.startswith(f"{known}.") for known in names):
            found[name] = tensor
    return found


def _from_flash(trainer: TieredTrainer, home: UnitHome, name: str) -> StreamedTensor:
    for slot in home.layout.slots:
        if slot.name == name:
            return StreamedTensor(slot.param.dtype, home.layout.shapes[slot.index], _landed(trainer, home, slot.param))
    held = next(held for held in home.layout.frozen if held.name == name)
    return StreamedTensor(held.dtype, held.shape, _landed(trainer, home, held.param))


def _landed(trainer: TieredTrainer, home: UnitHome, param: torch.Tensor) -> Callable[[], Iterator[torch.Tensor]]:
    def parts() -> Iterator[torch.Tensor]:
        weights = trainer.assembly.parts.weights
        weights.use(home.index)
        yield param.detach().to("cpu", copy=True)  # it is still read when the next unit overwrites the buffer
        weights.used(home.index)

    return parts


def _state(trainer: TieredTrainer) -> Tensors:
    found: Tensors = {}
    for home in trainer.assembly.homes:
        for block in home.layout.blocks:
            for slot in block.slots:
                shape = home.layout.shapes[slot.index]
                for part, label in enumerate(_PARTS if block.narrow else _PARTS[:2]):
                    dtype = torch.int16 if part == 2 else torch.float32
                    found[f"{slot.name}.{label}"] = StreamedTensor(
                        dtype, shape, _pieces(trainer, home, block, slot, part)
                    )
    return found


def _pieces(
    trainer: TieredTrainer, home: UnitHome, block: Block, slot: Slot, part: int
) -> Callable[[], Iterator[torch.Tensor]]:
    def parts() -> Iterator[torch.Tensor]:
        for number, (owner, piece) in enumerate(home.layout.pieces):
            start, stop = max(slot.start, piece.start), min(slot.stop, piece.stop)
            if owner is block and start < stop:
                view = block.state_views(_read(trainer, home, number, piece), piece.stop - piece.start)[part]
                assert view is not None
                yield view[start - piece.start : stop - piece.start].cpu()

    return parts


def _read(trainer: TieredTrainer, home: UnitHome, number: int, piece: Piece) -> torch.Tensor:
    here = home.device_state if home.device_state is not None else home.host_state
    if here is not None:
        return here[piece.offset : piece.offset + piece.num_bytes]
    flash = trainer.assembly.parts.flash_state
    assert flash is not None
    return flash.load(home.index, number)


def _write(trainer: TieredTrainer, home: UnitHome, number: int, piece: Piece, buffer: torch.Tensor) -> None:
    if home.flash_state is not None:
        flash = trainer.assembly.parts.flash_state
        assert flash is not None
        flash.store(home.index, number, buffer)


def _fill_piece(block: Block, piece: Piece, buffer: torch.Tensor, state: Mapping[str, torch.Tensor]) -> None:
    views = block.state_views(buffer, piece.stop - piece.start)
    for slot in block.slots:
        start, stop = max(slot.start, piece.start), min(slot.stop, piece.stop)
        if start >= stop:
            continue
        for view, label in zip(views, _PARTS, strict=True):
            if view is None:
                continue
            saved = state.get(f"{slot.name}.{label}")
            if saved is None or saved.numel() != slot.count or saved.dtype != view.dtype:
                raise _other_model(f"{slot.name}.{label}")
            view[start - piece.start : stop - piece.start].copy_(
                saved.reshape(-1)[start - slot.start : stop - slot.start]
            )


def _load_weights(trainer: TieredTrainer, home: UnitHome, weights: Mapping[str, torch.Tensor]) -> None:
    """Through whatever buffer holds the unit; one that was moved to the device is written back from there."""
    flow, lanes = trainer.assembly.parts.weights, trainer.assembly.parts.lanes
    if not home.layout.weight_bytes:
        return
    targets = [buffer for buffer in (home.device_weights, home.host_weights) if buffer is not None]
    flow.forget(home.index)
    if not targets:
        targets = [flow.land(home.index)]
        lanes.drain()
    for buffer in targets:
        home.layout.bind(buffer[: home.layout.weight_bytes])
        for name, param in [
            *((slot.name, slot.param) for slot in home.layout.slots),
            *((held.name, held.param) for held in home.layout.frozen),
        ]:
            saved = weights.get(name)
            if saved is None and not param.requires_grad:
                continue  # adapters alone were saved
            if saved is None or saved.shape != param.shape:
                raise _other_model(name)
            param.data.copy_(saved)
    if home.flash_weights is not None:
        flow.write_back(home.index, lanes.compute_mark())
        flow.park()
    elif home.device_weights is not None:
        home.layout.bind(home.device_weights)


def _other_model(name: str) -> RunError:
    return RunError(
        "ST404",
        _("the checkpoint is of another model: {name}").format(name=name),
        place="checkpoints",
        fix=_("choose another --out, or run the job that this folder belongs to"),
    )
