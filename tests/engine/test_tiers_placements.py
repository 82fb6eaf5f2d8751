"""Proves that the tier engine's losses, norms and weights are the same bits wherever the state lives.

50 steps on every placement with accumulation 1 and 4; fewer with dropout, untied, frozen layers, adapters over streamed
frozen weights, encoders, lists of modules; and with lanes that run as late as the marks allow.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiers_doubles import (
    PLACEMENTS,
    LaggingLanes,
    batches,
    bert,
    class_batches,
    class_loss,
    llama,
    lora,
    place,
    same,
    train,
)
from torch import nn

STEPS = 50
FEW = 12  # where another thing than the placement is tried


def _frozen(model: Any) -> Any:
    """Embedding and the first block do not learn."""
    model.model.embed_tokens.requires_grad_(False)
    model.model.layers[0].requires_grad_(False)
    return model


def _head_alone(model: Any) -> Any:
    model.requires_grad_(False)
    model.lm_head.requires_grad_(True)
    return model


BUILDS: dict[str, Any] = {
    "tied": lambda: llama(),
    "untied": lambda: llama(tied=False),
    "dropout": lambda: llama(dropout=0.2),
    "frozen": lambda: _frozen(llama(tied=False)),
    "head": lambda: _head_alone(llama(tied=False)),
    "lora": lambda: lora(llama()),
    "lora dropout": lambda: lora(llama(dropout=0.1), dropout=0.2),
    "fp32": lambda: llama(dtype=torch.float32),
}
_REFERENCES: dict[tuple[str, int, float, int], Any] = {}


def _reference(name: str, count: int, clip: float, folder: Path, steps: int = FEW) -> Any:
    key = (name, count, clip, steps)
    if key not in _REFERENCES:
        build = BUILDS[name]()
        _REFERENCES[key] = train(
            build, PLACEMENTS["all on the device"], folder, steps=steps, count=count, max_grad_norm=clip
        )[:2]
    return _REFERENCES[key]


def _check(
    name: str, placement: str, count: int, folder: Path, clip: float = 1.0, steps: int = FEW, **options: Any
) -> None:
    losses, weights = _reference(name, count, clip, folder, steps)
    found, moved, trainer = train(
        BUILDS[name](), PLACEMENTS[placement], folder, steps=steps, count=count, max_grad_norm=clip, **options
    )
    trainer.close()
    assert found == losses
    assert same(moved, weights)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("placement", list(PLACEMENTS)[1:])
def test_fifty_steps_are_the_same_bits_on_every_placement(placement: str, count: int, tmp_path: Path) -> None:
    _check("tied", placement, count, tmp_path, steps=STEPS)


@pytest.mark.parametrize("name", list(BUILDS)[1:])
@pytest.mark.parametrize("placement", ["everything in DRAM", "weights on flash too", "every second unit"])
def test_whatever_the_model_learns(name: str, placement: str, tmp_path: Path) -> None:
    _check(name, placement, 2, tmp_path)


@pytest.mark.parametrize("placement", ["state in DRAM", "everything in DRAM", "state on flash", "every second unit"])
def test_without_clipping_updates_run_in_backward_and_are_the_same(placement: str, tmp_path: Path) -> None:
    _check("tied", placement, 2, tmp_path, clip=0.0)


def test_backward_updates_equal_deferred_ones_where_the_norm_is_below_the_clip(tmp_path: Path) -> None:
    _losses, weights = _reference("untied", 2, 0.0, tmp_path)
    assert same(weights, _reference("untied", 2, 1e9, tmp_path)[1])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "placement",
    ["state in DRAM", "everything in DRAM", "state on flash", "weights on flash too", "every second unit"],
)
def test_lanes_that_lag_as_far_as_marks_allow_change_nothing(placement: str, seed: int, tmp_path: Path) -> None:
    """Were a wait missing (a ring slot reused early, weights read before they are written back), bits would differ."""
    name = ("tied", "untied", "lora")[seed % 3]
    count = 1 + seed // 3
    losses, weights = _reference(name, count, 1.0, tmp_path)
    found, moved, trainer = train(
        BUILDS[name](), PLACEMENTS[placement], tmp_path, steps=FEW, count=count, lanes=LaggingLanes(seed)
    )
    assert found == losses and same(moved, weights)
    trainer.close()


def test_lanes_without_waits_are_caught(tmp_path: Path) -> None:
    """The double does its work: with every second wait ignored the losses differ."""

    class Careless(LaggingLanes):
        calls = 0

        def compute_wait(self, mark: Any) -> None:
            self.calls += 1
            if self.calls % 2:
                super().compute_wait(mark)

    losses, _weights = _reference("tied", 2, 1.0, tmp_path)
    found, _moved, _trainer = train(
        BUILDS["tied"](), PLACEMENTS["everything in DRAM"], tmp_path, steps=5, count=2, lanes=Careless(0)
    )
    assert found != losses[:5]


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("placement", ["everything in DRAM", "state on flash"])
def test_an_encoder_with_masks_and_a_pooler(placement: str, dropout: float, tmp_path: Path) -> None:
    options: dict[str, Any] = {"loss": class_loss, "weight": lambda b: len(b["targets"]), "make": class_batches}
    losses, weights, _t = train(bert(dropout=dropout), None, tmp_path, steps=20, count=2, **options)
    found, moved, _t = train(bert(dropout=dropout), PLACEMENTS[placement], tmp_path, steps=20, count=2, **options)
    assert found == losses and same(moved, weights)


def _chain() -> list[nn.Module]:
    torch.manual_seed(3)
    first = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1))
    middle = [nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.1)) for _i in range(3)]
    return [first, *middle, nn.Linear(16, 1)]


def _chain_batches(step: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(step)
    return [(torch.randn(6, 8, generator=draw), torch.randn(6, 1, generator=draw)) for _i in range(count)]


@pytest.mark.parametrize("placement", ["everything in DRAM", "weights on flash too", "updated in DRAM"])
def test_a_list_of_modules_in_a_plain_loop(placement: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "loss": lambda out, batch: ((out - batch[1]) ** 2).sum(),
        "weight": lambda batch: len(batch[1]),
        "make": _chain_batches,
    }
    losses, weights, _t = train(_chain(), None, tmp_path, steps=30, count=2, **options)
    found, moved, _t = train(_chain(), PLACEMENTS[placement], tmp_path, steps=30, count=2, **options)
    assert found == losses and same(moved, weights)


@pytest.mark.parametrize("pieces", [1 << 13, 1 << 14, 1 << 30])
@pytest.mark.parametrize("ring", [2, 5])
def test_neither_pieces_nor_ring_change_a_bit(pieces: int, ring: int, tmp_path: Path) -> None:
    import dataclasses

    make = place(state="dram", gradients="dram", ring_pieces=ring)
    losses, weights = _reference("tied", 2, 1.0, tmp_path)
    found, moved, _t = train(
        llama(), lambda specs: dataclasses.replace(make(specs), piece_bytes=pieces), tmp_path, steps=FEW, count=2
    )
    assert found == losses and same(moved, weights)


def test_longer_batches_later_make_room_without_losing_an_update(tmp_path: Path) -> None:
    """The slab of gradients and inputs grows between two steps, while an update that reads it is owed."""

    def growing(step: int, count: int) -> list[dict[str, torch.Tensor]]:
        return [{k: torch.cat([v] * (1 + step // 3), dim=1) for k, v in b.items()} for b in batches(step, count)]

    losses, weights, _t = train(llama(), None, tmp_path, steps=9, count=2, make=growing)
    found, moved, _t = train(llama(), PLACEMENTS["everything in DRAM"], tmp_path, steps=9, count=2, make=growing)
    assert found == losses and same(moved, weights)


def _quantised() -> Any:
    """4-bit blocks under fp32 adapters, as `tune.method: qlora` makes them."""
    pytest.importorskip("bitsandbytes")
    from stoker.techniques.adapter.quantised import quantise_blocks

    base = llama(tied=False)
    base.config.architectures = ["LlamaForCausalLM"]
    quantise_blocks(base, double_quant=True, wide=False)
    return lora(base)


@pytest.mark.parametrize("placement", ["everything in DRAM", "weights on flash too"])
def test_adapters_over_streamed_4_bit_weights(placement: str, tmp_path: Path) -> None:
    losses, weights, trainer = train(_quantised(), None, tmp_path, steps=FEW, count=2)
    codes = [held for home in trainer.assembly.homes for held in home.layout.frozen if held.dtype == torch.uint8]
    assert len(codes) == 3 * 7
    found, moved, _t = train(_quantised(), PLACEMENTS[placement], tmp_path, steps=FEW, count=2)
    assert found == losses and same(moved, weights)
