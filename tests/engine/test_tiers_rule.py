"""The rule that fills a device: what it keeps there fits by the planner's own replay, and nothing more would."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiers_doubles import PLACEMENTS, batches, llama, same, train
from torch import nn

from stoker.core.schedule import TierBudgets, TierSchedule, UnitSpec
from stoker.engine.tiers import TieredTrainer, gradients
from stoker.engine.tiers.layout import lay_out_unit
from stoker.engine.tiers.placing import schedule_for, specs_of
from stoker.techniques.placement.replay import replay_bytes


def _llama_3b(boundary_bytes: int) -> list[UnitSpec]:
    """Units of the 3.21 B shape of W1 to W3: no weight is made."""
    embedding: list[tuple[int, ...]] = [(128256, 3072)]
    block: list[tuple[int, ...]] = [
        (3072, 3072),
        (1024, 3072),
        (1024, 3072),
        (3072, 3072),
        (8192, 3072),
        (8192, 3072),
        (3072, 8192),
    ]
    units: list[list[tuple[int, ...]]] = [embedding, *[[*block, (3072,), (3072,)]] * 28, [(3072,)]]
    layouts = []
    for index, shapes in enumerate(units):
        params = [
            (f"{index}.{at}", nn.Parameter(torch.empty(shape, dtype=torch.bfloat16, device="meta")))
            for at, shape in enumerate(shapes)
        ]
        order = {id(param): at for at, (_name, param) in enumerate(params)}
        layouts.append(
            lay_out_unit(f"unit.{index}", params, order=order, groups=dict.fromkeys(order, 0), piece_bytes=32 << 20)
        )
    return specs_of(layouts, boundary_bytes)


def _on_device(schedule: TierSchedule) -> list[int]:
    return [index for index, place in enumerate(schedule.placements) if place.state == "hbm"]


@pytest.mark.parametrize("tokens", [16384, 4096])
def test_w1_and_w3_keep_the_embedding_and_the_first_blocks(tokens: int) -> None:
    """24 GB less 6.4 of weights, 6.4 of gradients, 0.3 of ring, 3.2 of work and 0.6 of fragments: 7 GB of the 32."""
    specs = _llama_3b(tokens * 3072 * 2)
    budgets = TierBudgets(hbm_bytes=24 * 10**9)
    schedule = schedule_for(specs, budgets, micro_batches=1)
    assert _on_device(schedule) == [0, 1, 2, 3, 29]
    away = sum(u.state_bytes for u, p in zip(schedule.units, schedule.placements, strict=True) if p.state != "hbm")
    assert away == pytest.approx(25.2e9, rel=0.01)
    assert all(place.activations == place.gradients == place.weights == "hbm" for place in schedule.placements)
    working = max(unit.working_bytes for unit in specs)
    assert sum(replay_bytes(schedule).resident.values()) + working <= 0.975 * 24e9
    first = next(i for i, place in enumerate(schedule.placements) if place.state != "hbm")
    more = tuple(replace(p, state="hbm") if i == first else p for i, p in enumerate(schedule.placements))
    fuller = replay_bytes(replace(schedule, placements=more))
    assert sum(fuller.resident.values()) + working > 0.975 * 24e9


def test_the_work_of_a_block_is_what_the_h200_showed() -> None:
    """W1's peak was 19.7 GB: 6.4 weights, 6.4 gradients, 2.8 inputs, 0.2 of ring, 0.8 of the head's share: 3.0 left."""
    specs = _llama_3b(16384 * 3072 * 2)
    assert max(unit.working_bytes for unit in specs[1:-1]) == pytest.approx(3.06e9, rel=0.03)


def test_a_larger_device_never_keeps_less() -> None:
    specs = _llama_3b(16384 * 3072 * 2)
    kept = [
        sum(replay_bytes(schedule_for(specs, TierBudgets(hbm_bytes=g * 10**9), micro_batches=4)).resident.values())
        for g in (8, 12, 16, 24, 40, 80)
    ]
    assert kept == sorted(kept) and kept[0] < 8e9 and kept[-1] > 50e9


def test_kept_inputs_lie_in_the_gradient_buffer_of_their_unit(tmp_path: Path) -> None:
    """So the device never holds both: 2.8 GB of W1. A second micro-batch that has no room lies beside it."""
    trainer = TieredTrainer(llama(), schedule=PLACEMENTS["state in DRAM"], nvme_dir=tmp_path)
    boundaries = trainer.assembly.parts.boundaries
    inside: dict[tuple[int, int], bool] = {}
    keep = boundaries.keep

    def spy(unit: int, micro: int, hidden: torch.Tensor) -> None:
        keep(unit, micro, hidden)
        kept, grads = boundaries._kept[unit, micro].device, trainer.assembly.homes[unit].device_grads
        assert kept is not None and grads is not None and torch.equal(kept, hidden)
        inside[unit, micro] = kept.untyped_storage().data_ptr() == grads.untyped_storage().data_ptr()

    boundaries.keep = spy  # type: ignore[method-assign]
    trainer.step(batches(0, 20))
    room = trainer.assembly.homes[1].layout.grad_bytes // (2 * 12 * 32 * 2)
    assert 1 <= room < 20
    assert inside == {(unit, micro): micro < room for unit in (1, 2, 3) for micro in range(20)}
    trainer.close()


@pytest.mark.parametrize("scaled", [1.0, 0.125])
def test_the_sum_of_a_tied_weight_is_the_same_in_parts(scaled: float, monkeypatch: pytest.MonkeyPatch) -> None:
    view = torch.randn(300).to(torch.bfloat16)
    other = torch.randn(300).to(torch.bfloat16)
    whole = ((view.float() + other.float()) * scaled).to(torch.bfloat16)
    monkeypatch.setattr(gradients, "_PART_ELEMENTS", 77)
    gradients._put(view, view, other, scaled)
    assert torch.equal(view, whole)


def test_where_a_tied_share_waits_changes_no_bit(tmp_path: Path) -> None:
    """In the gradient buffer (state in DRAM) or as it came (gradients in DRAM): one micro-batch, no sum."""
    found: list[Any] = [
        train(llama(), PLACEMENTS[name], tmp_path, steps=6, count=1)[:2]
        for name in ("all on the device", "state in DRAM", "everything in DRAM")
    ]
    for losses, weights in found[1:]:
        assert losses == found[0][0] and same(weights, found[0][1])
