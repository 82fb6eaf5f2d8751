"""Proves that a kill at any moment loses nothing: resumed under any placement, the run ends on the same bits.

STOKER_KILLS sets the number of kills (default 4) and STOKER_KILL_SEED the first seed, as in test_kill.py.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tiers_doubles import PLACEMENTS, batches, llama, lora, same, train, weights_of

from stoker.engine.checkpoint import find_resume, save_checkpoint
from stoker.engine.tiers import TieredTrainer
from stoker.engine.tiers.saving import capture_tiers, restore_tiers

KILLS = int(os.environ.get("STOKER_KILLS", "4"))
SEED = int(os.environ.get("STOKER_KILL_SEED", "0"))
STEPS = 12
_SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_tiers_resume import go_on
print("ready", flush=True)
go_on(Path(sys.argv[1]), sys.argv[2])
print("done", flush=True)
"""


def _open(placement: str, folder: Path, model: Any = None) -> TieredTrainer:
    return TieredTrainer(model or llama(dropout=0.1), schedule=PLACEMENTS[placement], nvme_dir=folder, lr=1e-2)


def _save(trainer: TieredTrainer, folder: Path, *, trainable_only: bool = False) -> None:
    files, meta = capture_tiers(trainer, trainable_only=trainable_only)
    save_checkpoint(folder, trainer.steps, files, meta)


def _load(trainer: TieredTrainer, folder: Path) -> bool:
    point = find_resume(folder).newest
    if point is None:
        return False
    restore_tiers(trainer, {name: point.map(name) for name in point.files}, point.meta)
    return True


def go_on(folder: Path, placement: str) -> TieredTrainer:
    """Resume and train to the last step, saving after every second."""
    trainer = _open(placement, folder)
    _load(trainer, folder)
    while trainer.steps < STEPS:
        trainer.step(batches(trainer.steps, 2))
        if trainer.steps % 2 == 0:
            _save(trainer, folder)
    return trainer


def _unbroken() -> dict[str, torch.Tensor]:
    trainer = _open("all on the device", Path())
    for step in range(STEPS):
        trainer.step(batches(step, 2))
    return weights_of(trainer)


@pytest.mark.parametrize("first", list(PLACEMENTS)[::2])
def test_a_checkpoint_of_one_placement_goes_on_under_another(first: str, tmp_path: Path) -> None:
    before = _open(first, tmp_path)
    for step in range(5):
        before.step(batches(step, 2))
    _save(before, tmp_path)
    expected = _unbroken()
    for second in list(PLACEMENTS)[1::3]:
        after = _open(second, tmp_path)
        assert _load(after, tmp_path) and after.steps == 5
        for step in range(5, STEPS):
            after.step(batches(step, 2))
        assert same(weights_of(after), expected), (first, second)


def test_saving_while_updates_are_owed_and_going_on_changes_nothing(tmp_path: Path) -> None:
    trainer = go_on(tmp_path, "everything in DRAM")
    assert same(weights_of(trainer), _unbroken())


def test_adapters_alone_are_saved_over_a_frozen_base(tmp_path: Path) -> None:
    _losses, expected, _t = train(lora(llama()), None, tmp_path, steps=8, count=1)
    one = _open("weights on flash too", tmp_path, lora(llama()))
    for step in range(4):
        one.step(batches(step, 1))
    _save(one, tmp_path, trainable_only=True)
    point = find_resume(tmp_path).newest
    assert point is not None and all("lora_" in name for name in point.load("model"))
    other = _open("every second unit", tmp_path, lora(llama()))
    assert _load(other, tmp_path)
    for step in range(4, 8):
        other.step(batches(step, 1))
    assert same(weights_of(other), expected)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    from stoker.core.errors import RunError

    _save(_open("state in DRAM", tmp_path), tmp_path)
    with pytest.raises(RunError, match="ST404"):
        _load(_open("state in DRAM", tmp_path, llama(tied=False)), tmp_path)


def test_an_interrupt_in_the_middle_of_a_step_asks_for_a_state(tmp_path: Path) -> None:
    from stoker.core.errors import RunError

    trainer = _open("everything in DRAM", tmp_path)
    trainer.step(batches(0, 2))
    _save(trainer, tmp_path)
    block = trainer.program.root.model.layers[1]  # type: ignore[union-attr,index]
    calls = []

    def interrupt(_module: Any, _args: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    handle = block.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.step(batches(1, 2))
    handle.remove()
    with pytest.raises(RunError, match="ST464"):
        trainer.step(batches(1, 2))
    assert _load(trainer, tmp_path)
    for step in range(1, STEPS):
        trainer.step(batches(step, 2))
    assert same(weights_of(trainer), _unbroken())


def test_kill_at_random_points_then_resume_is_bitwise_the_unbroken_run(tmp_path: Path) -> None:
    """Each kill falls somewhere in the child's training: in an update, a write-back, a save. Then another placement."""
    draw = random.Random(SEED)
    script = _SCRIPT.format(tests=str(Path(__file__).parent))
    names = ["everything in DRAM", "state on flash", "every second unit", "weights on flash too"]
    kills = 0
    expected = _unbroken()
    while kills < KILLS:
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), names[kills % len(names)]], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(draw.uniform(0.05, 1.2))
        child.kill()
        child.wait()
        kills += 1
    assert same(weights_of(go_on(tmp_path, "updated in DRAM")), expected)
    leftovers = [p.name for p in tmp_path.iterdir() if p.name.startswith(".stoker-tier")]
    assert leftovers == []
