"""Proves the seed rule: order and draws are pure functions of their keys, the same for good and on every machine."""

import hashlib
import itertools
import subprocess
import sys

import pytest

from stoker.core.lr_schedule import steps_per_epoch
from stoker.engine.ordering import epoch_order, keyed_seed, step_samples

_MASK = (1 << 64) - 1


def _order_by_hand(seed: int, epoch: int, num_samples: int) -> list[int]:
    """The documented formula in Python integers, written apart from the implementation."""

    def half(number: int) -> int:
        text = f"stoker/1/sorder/i{seed}/i{epoch}/i{number}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
        return x ^ (x >> 31)

    k0, k1 = half(0), half(1)
    return sorted(range(num_samples), key=lambda i: mix(mix((k0 + i * 0x9E3779B97F4A7C15) & _MASK) ^ k1))


def test_first_ids_are_pinned_for_good() -> None:
    assert list(epoch_order(0, 0, 10)) == [7, 3, 2, 5, 9, 8, 6, 0, 4, 1]
    assert list(epoch_order(0, 1, 10)) == [8, 6, 2, 5, 3, 0, 9, 7, 1, 4]
    assert list(epoch_order(2**63 - 1, 3, 97461))[:6] == [54188, 55758, 28378, 14160, 3447, 74713]
    assert keyed_seed(0, 1, 2, 3) == 2806868383186303733
    assert keyed_seed(7, 200, 0, "dropout") == 6068095908895413616


@pytest.mark.parametrize(("seed", "epoch", "num_samples"), [(0, 0, 1), (1, 0, 257), (2**40, 9, 1000), (3, 1, 0)])
def test_formula_by_hand_gives_the_same(seed: int, epoch: int, num_samples: int) -> None:
    assert list(epoch_order(seed, epoch, num_samples)) == _order_by_hand(seed, epoch, num_samples)


def test_every_epoch_is_a_permutation_of_plain_ints_and_differs_from_the_last() -> None:
    orders = [list(epoch_order(5, epoch, 1000)) for epoch in range(4)]
    assert all(sorted(order) == list(range(1000)) for order in orders)
    assert all(a != b for a, b in itertools.pairwise(orders))
    assert all(type(i) is int for i in orders[0])
    assert epoch_order(5, 0, 1000) is not epoch_order(5, 0, 1000)  # a caller who changes one spoils none


def test_positions_are_spread_evenly() -> None:
    """Over 2,000 epochs each of 8 samples comes first about 250 times (chi-square, 7 degrees, 99.9 %: 24.3)."""
    counts = [0] * 8
    for epoch in range(2000):
        counts[epoch_order(11, epoch, 8)[0]] += 1
    assert sum((count - 250) ** 2 / 250 for count in counts) < 24.3


def test_stream_of_steps_201_to_500_is_the_same_after_a_resume_in_a_new_process() -> None:
    """Case 11: 125 steps an epoch, stopped after step 200."""
    whole = [step_samples(3, step, 4000, 32) for step in range(500)]
    assert steps_per_epoch(4000, 32) == 125
    assert {epoch for epoch, _ids in whole} == {0, 1, 2, 3}
    code = (
        "from stoker.engine.ordering import step_samples\n"
        "for step in range(200, 500): print(*step_samples(3, step, 4000, 32)[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    resumed = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert resumed == [list(ids) for _epoch, ids in whole[200:]]


def test_each_sample_exactly_once_an_epoch_also_in_the_smaller_last_step() -> None:
    steps = [step_samples(1, step, 103, 10) for step in range(11, 22)]
    assert {epoch for epoch, _ids in steps} == {1}
    assert len(steps[-1][1]) == 3
    assert sorted(i for _epoch, ids in steps for i in ids) == list(range(103))


def test_every_part_of_the_key_changes_the_draw() -> None:
    base = keyed_seed(1, 2, 3, 4)
    others = [keyed_seed(0, 2, 3, 4), keyed_seed(1, 0, 3, 4), keyed_seed(1, 2, 0, 4), keyed_seed(1, 2, 3, 0)]
    others += [keyed_seed(1, 2, 3, "4"), keyed_seed(12, 3, 4, 0), keyed_seed(1, 23, 4, 0)]
    assert base == keyed_seed(1, 2, 3, 4)
    assert len({base, *others}) == 8
    assert all(0 <= seed < 2**63 for seed in [base, *others])


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        epoch_order(0, -1, 5)
    with pytest.raises(ValueError, match="step"):
        step_samples(0, 0, 0, 8)
