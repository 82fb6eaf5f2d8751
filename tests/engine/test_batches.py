"""Proves the feed: each sample once an epoch and none dropped (case 29), no processes or shared memory (cases 28, 31),
errors of the thread that assembles arrive in the thread that trains."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from stoker.engine.batches import Ahead, StepPlan, evaluation_batches
from stoker.engine.microbatch import MicroBatch
from stoker.techniques.packing import packing


class Numbers:
    """Samples that are their own number, of varying length."""

    def __init__(self, count: int) -> None:
        self.lengths: Sequence[int] = [1 + (i * 7919) % 50 for i in range(count)]

    def __len__(self) -> int:
        return len(self.lengths)

    def collate(self, samples: Sequence[int]) -> MicroBatch:
        width = max(self.lengths[i] for i in samples)
        return MicroBatch(
            inputs={"input_ids": torch.zeros(len(samples), width)},
            targets=torch.tensor(samples),
            samples=len(samples),
            tokens=sum(self.lengths[i] for i in samples),
            padded_tokens=len(samples) * width,
            weight=float(len(samples)),
        )


def ids(plan: StepPlan, steps: range) -> list[list[int]]:
    return [[int(i) for micro in plan.batch(step).micro_batches for i in micro.targets] for step in steps]


@pytest.mark.parametrize("name", ["none", "bucketed"])
def test_10_000_records_by_32_are_313_batches_each_id_once(name: str) -> None:
    plan = StepPlan(Numbers(10_000), packing(name), seed=3, global_batch_size=32, micro_batch_size=8)
    steps = ids(plan, range(313))
    assert sorted(i for step in steps for i in step) == list(range(10_000))
    assert len(steps[-1]) == 10_000 - 312 * 32
    assert plan.batch(313).epoch == 1


def test_seven_micro_batches_by_four_are_two_updates_the_second_over_its_own_three() -> None:
    plan = StepPlan(Numbers(7), packing("none"), seed=0, global_batch_size=4, micro_batch_size=1)
    first, second = plan.batch(0), plan.batch(1)
    assert (len(first.micro_batches), first.weight) == (4, 4.0)
    assert (len(second.micro_batches), second.weight) == (3, 3.0)


def test_packing_changes_neither_the_samples_of_a_step_nor_their_number() -> None:
    source = Numbers(100)
    plans = [
        StepPlan(source, packing(name), seed=1, global_batch_size=16, micro_batch_size=size)
        for name, size in (("none", 16), ("bucketed", 4), ("none", 2))
    ]
    for step in range(7):
        sets = [sorted(i for group in plan.samples(step)[1] for i in group) for plan in plans]
        assert sets[0] == sets[1] == sets[2]


def test_evaluation_takes_every_sample_once_longest_first() -> None:
    source = Numbers(45)
    batches = list(evaluation_batches(source, 8))
    assert sorted(int(i) for batch in batches for i in batch.targets) == list(range(45))
    widths = [batch.padded_tokens // batch.samples for batch in batches]
    assert widths == sorted(widths, reverse=True)


def test_the_longest_micro_batch_is_found() -> None:
    source = Numbers(30)
    plan = StepPlan(source, packing("bucketed"), seed=0, global_batch_size=8, micro_batch_size=4)
    assert sorted((source.lengths[i] for i in plan.longest()), reverse=True) == sorted(source.lengths)[:-5:-1]


def test_ahead_keeps_order_uses_no_shared_memory_and_ends_its_thread() -> None:
    shm = Path("/dev/shm")
    before = set(shm.iterdir()) if shm.is_dir() else set()
    with Ahead(iter(range(100)), depth=3) as ahead:
        assert list(ahead) == list(range(100))
    assert (set(shm.iterdir()) if shm.is_dir() else set()) == before
    with Ahead(iter(range(10**9)), depth=2) as ahead:
        assert next(iter(ahead)) == 0
    assert not any(thread.name == "stoker-batches" for thread in threading.enumerate())


def test_an_error_while_assembling_reaches_the_trainer() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("file gone")

    with Ahead(broken()) as ahead, pytest.raises(ValueError, match="file gone"):
        list(ahead)
