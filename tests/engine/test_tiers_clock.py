"""A step's seconds by term: they sum to the step, a wait is no computing, and a run's record and report show them."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tiers_doubles import PLACEMENTS, batches, llama
from tiny_jobs import plan_here, sums_job, write_sums

from stoker.engine.progress import Silent
from stoker.engine.run import run
from stoker.engine.tiers import TieredTrainer
from stoker.engine.tiers.clock import StepClock, StepSeconds, StepTimes
from stoker.report.measured import compare, measure

SLOW_S = 0.03


def test_waits_are_taken_out_of_the_phase_they_lie_in() -> None:
    clock = StepClock(torch.device("cpu"))
    ticks = iter([0.0, 1.0, 10.0, 11.0, 13.0, 20.0, 20.0, 20.5, 21.5, 23.0, 30.0, 34.0, 35.0, 40.0])
    clock._now = lambda: next(ticks)  # type: ignore[method-assign]
    with clock.wait():  # before the step: 1 s of updates that were decided
        pass
    clock.begin()
    with clock.phase("forward"), clock.wait(), clock.wait():  # 10 s, 2 of them waiting; the inner one is the same wait
        pass
    with clock.phase("loss"), clock.wait():  # 3 s, 1 of them waiting
        pass
    with clock.phase("backward"), clock.wait():  # 10 s, 1 of them waiting
        pass
    assert clock.take() == StepSeconds(forward_s=8, loss_s=2, backward_s=9, forward_wait_s=4, backward_wait_s=1)
    assert clock.take() == StepSeconds()


def test_the_first_steps_do_not_count() -> None:
    times = StepTimes(skipped=2)
    for forward_s in (100.0, 100.0, 1.0, 2.0, 9.0):
        times.add(StepSeconds(forward_s=forward_s))
    assert times.medians() == StepSeconds(forward_s=2.0)
    assert StepTimes().medians() is None


@pytest.mark.parametrize("clip", [1.0, 0.0])
def test_a_slow_update_is_a_wait_and_no_computing(clip: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five units of SLOW_S each: before and in the next forward; without clipping the head's under the loss, the others
    in backward."""
    trainer = TieredTrainer(llama(), schedule=PLACEMENTS["state in DRAM"], nvme_dir=tmp_path, max_grad_norm=clip)
    real = trainer.assembly.parts.updater.on_device

    def slow(*given: Any) -> Any:
        time.sleep(SLOW_S)
        return real(*given)

    trainer.step(batches(0, 2))
    monkeypatch.setattr(trainer.assembly.parts.updater, "on_device", slow)
    trainer.flush()
    trainer.step(batches(1, 2))
    begun = time.perf_counter()
    seconds = trainer.step(batches(2, 2)).seconds
    whole = time.perf_counter() - begun
    forward, backward = (5, 0) if clip else (1, 4)
    assert seconds.forward_wait_s >= forward * SLOW_S
    assert seconds.backward_wait_s >= backward * SLOW_S
    assert seconds.compute_s + (0 if clip else seconds.waiting_s) <= whole  # some waits of a clipped step precede it
    trainer.close()


@pytest.mark.parametrize("placement", ["state in DRAM", "everything in DRAM"])
def test_updates_are_made_while_forward_runs_not_before_it(
    placement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W1's forward once hid nothing: making room for a slab that nobody needed made every owed update first."""
    trainer = TieredTrainer(llama(), schedule=PLACEMENTS[placement], nvme_dir=tmp_path)
    trainer.step(batches(0, 1))
    order: list[str] = []
    program, updater = trainer.program, trainer.assembly.parts.updater
    block, update = program.block, updater.on_device
    monkeypatch.setattr(program, "block", lambda i, *a: order.append(f"block {i + 1}") or block(i, *a))
    monkeypatch.setattr(updater, "on_device", lambda unit, *a: order.append(f"update {unit}") or update(unit, *a))
    trainer.step(batches(1, 1))
    assert order.index("block 1") < order.index("update 3") < order.index("block 3")
    assert order.index("block 2") < order.index("update 4")
    trainer.close()


def test_a_run_records_its_terms_beside_the_plans(tmp_path: Path) -> None:
    pins = {"placement": "tiers", "recompute": "full", "micro_batch_size": 4}
    plan = plan_here(tmp_path, sums_job(write_sums(tmp_path), run=pins, train={"max_steps": 6}), "job.yaml")
    record = run(plan, tmp_path / "run", progress=Silent())
    assert record.end is not None
    terms = record.end["tier_terms"]
    assert terms["compute_s"] == pytest.approx(terms["forward_s"] + terms["loss_s"] + terms["backward_s"])
    assert terms["waiting_s"] == pytest.approx(terms["forward_wait_s"] + terms["backward_wait_s"])
    assert terms["replayed_waiting_s"] >= 0
    rows = {row.name: row for row in compare(record, measure(record), plan.candidates[0])}
    steps = plan.candidates[0].time.step_terms
    assert rows["tier_compute"].measured == terms["compute_s"]
    assert rows["tier_waiting"].predicted == pytest.approx(steps["exposed_transfer"] + steps["optimizer"])
