"""Proves that the token formulas of packings agree with simulated batches, and that buckets change only padding."""

import random

import pytest

from stoker.core.profile import LengthDistribution, lengths_from_samples
from stoker.techniques.packing import PACKINGS, packing


def some_lengths(seed: int, count: int = 20_000) -> list[int]:
    """Comment-like lengths: log-normal, mean about 20, longest a few hundred."""
    draw = random.Random(seed)
    return [max(1, min(400, round(draw.lognormvariate(2.7, 0.7)))) for _ in range(count)]


def simulated_mean(name: str, lengths: list[int], micro: int, total: int, steps: int = 300) -> float:
    draw, technique = random.Random(1), packing(name)
    longest = max(lengths)
    tokens: list[float] = []
    for _ in range(steps):
        samples = [draw.randrange(len(lengths)) for _ in range(total)]
        for batch in technique.micro_batches(lengths, samples, micro):
            tokens.append(len(batch) * technique.padded_length([lengths[s] for s in batch], longest))
    return sum(tokens) / len(tokens)


@pytest.mark.parametrize("micro", [1, 4, 16, 64])
@pytest.mark.parametrize("name", [technique.name for technique in PACKINGS])
def test_mean_tokens_agree_with_simulation_within_3_percent(name: str, micro: int) -> None:
    lengths = some_lengths(0)
    predicted = packing(name).mean_tokens(lengths_from_samples(lengths), micro, 64)
    assert predicted == pytest.approx(simulated_mean(name, lengths, micro, 64), rel=0.03)


def test_mean_tokens_of_many_micro_batches() -> None:
    lengths = some_lengths(2)
    predicted = packing("bucketed").mean_tokens(lengths_from_samples(lengths), 4, 512)
    assert predicted == pytest.approx(simulated_mean("bucketed", lengths, 4, 512, steps=60), rel=0.03)


def test_buckets_never_cost_more_than_padding_and_less_with_more_to_sort() -> None:
    lengths = lengths_from_samples(some_lengths(3))
    padded = packing("none").mean_tokens(lengths, 8, 64)
    alone, sorted_64, sorted_512 = (packing("bucketed").mean_tokens(lengths, 8, n) for n in (8, 64, 512))
    assert padded > alone > sorted_64 > sorted_512 > 8 * lengths.mean * 0.99


@pytest.mark.parametrize("name", [technique.name for technique in PACKINGS])
def test_peak_is_a_micro_batch_around_the_longest_sample_case_8(name: str) -> None:
    lengths = lengths_from_samples([128] * 1000 + [8192])
    assert packing(name).peak_tokens(lengths, 4) == (4 * 8192.0, 8192.0)


@pytest.mark.parametrize("name", [technique.name for technique in PACKINGS])
@pytest.mark.parametrize("count", [1, 7, 8, 64])
def test_a_step_holds_the_same_samples_each_once(name: str, count: int) -> None:
    lengths = some_lengths(4, 100)
    samples = random.Random(5).sample(range(100), count)
    batches = packing(name).micro_batches(lengths, samples, 8)
    assert sorted(s for batch in batches for s in batch) == sorted(samples)
    assert all(len(batch) == 8 for batch in batches[:-1]) and 1 <= len(batches[-1]) <= 8


def test_buckets_start_with_the_longest_and_keep_data_order_among_equals() -> None:
    lengths = [5, 9, 5, 9, 1]
    assert packing("bucketed").micro_batches(lengths, [0, 1, 2, 3, 4], 2) == [[1, 3], [0, 2], [4]]


def test_constant_lengths_have_no_padding() -> None:
    lengths = LengthDistribution(quantiles=(197.0, 197.0), mean=197.0)
    for technique in PACKINGS:
        assert technique.mean_tokens(lengths, 8, 64) == pytest.approx(8 * 197.0)
