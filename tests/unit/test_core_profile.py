"""Length distributions: exact on measured counts, faithful to declared ones, and right about the longest of a batch."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.profile import lengths_constant, lengths_declared, lengths_from_samples

# lengths of the 790,000-comment job (issue 2): mean 18.6, 99th percentile 64, longest 458
MEAN, P99, LONGEST = 18.6, 64.0, 458.0


def test_declared_numbers_come_back() -> None:
    lengths = lengths_declared(MEAN, P99, LONGEST)
    assert lengths.mean == MEAN
    assert lengths.quantile(0.99) == pytest.approx(P99, rel=0.01)
    assert lengths.maximum == LONGEST
    middle = [lengths.quantile((i + 0.5) / 5000) for i in range(5000)]
    assert sum(middle) / 5000 == pytest.approx(MEAN, rel=0.05)


def test_measured_counts_keep_mean_and_ends() -> None:
    counts = [5, 1, 9, 3, 7]
    lengths = lengths_from_samples(counts)
    assert (lengths.quantiles[0], lengths.maximum, lengths.mean) == (1.0, 9.0, 5.0)
    assert lengths.quantile(0.5) == 5.0


def test_one_sample_is_enough() -> None:
    lengths = lengths_from_samples([12])
    assert lengths.quantile(0.3) == lengths.maximum == lengths.mean == 12.0
    assert lengths.expected_longest(64) == 12.0


def test_the_longest_of_a_batch_matches_a_simulation() -> None:
    """Against 4,000 drawn batches of 32: within 3 %."""
    random.seed(0)
    population = [max(1, round(math.exp(random.gauss(2.7, 0.7)))) for _ in range(50_000)]
    lengths = lengths_from_samples(population)
    drawn = [max(random.choices(population, k=32)) for _ in range(4000)]
    assert lengths.expected_longest(32) == pytest.approx(sum(drawn) / len(drawn), rel=0.03)


def test_the_longest_grows_with_the_batch() -> None:
    lengths = lengths_declared(MEAN, P99, LONGEST)
    values = [lengths.expected_longest(batch) for batch in (1, 2, 8, 32, 256)]
    assert values == sorted(values)
    assert values[0] == MEAN
    assert values[-1] < LONGEST


def test_truncation_cuts_the_tail_and_the_mean() -> None:
    lengths = lengths_declared(MEAN, P99, LONGEST)
    cut = lengths.truncated(32)
    assert cut.maximum == 32
    assert cut.mean < lengths.mean
    assert lengths.truncated(1000) is lengths
    assert cut.truncated(32) is cut


def test_the_mean_after_truncation_matches_the_samples() -> None:
    random.seed(1)
    population = [max(1, round(math.exp(random.gauss(2.7, 0.7)))) for _ in range(50_000)]
    for limit in (16, 64, 128):
        cut = lengths_from_samples(population).truncated(limit)
        assert cut.mean == pytest.approx(sum(min(n, limit) for n in population) / len(population), rel=0.005)


def test_one_very_long_sample_does_not_stretch_the_batches() -> None:
    """The comments of issue 2: 99 % up to 64 tokens, the longest 458. A straight line up to 458 would give 118."""
    random.seed(2)
    lengths = lengths_declared(MEAN, P99, LONGEST)
    drawn = [max(lengths.quantile(random.random()) for _ in range(64)) for _ in range(2000)]
    assert lengths.expected_longest(64) == pytest.approx(sum(drawn) / len(drawn), rel=0.03)
    assert lengths.expected_longest(64) < 80


def test_constant_lengths() -> None:
    lengths = lengths_constant(197)
    assert lengths.quantile(0.1) == lengths.expected_longest(8) == 197.0


def test_case_8_one_long_sample_among_a_thousand_short_ones_keeps_its_share() -> None:
    """Mean (1,000 x 128 + 8,192) / 1,001 = 136.06, above the 99th percentile of 128: as measured, so declared."""
    counts = [128] * 1000 + [8192]
    declared = lengths_declared(sum(counts) / 1001, 128.0, 8192.0)
    for lengths in (declared, lengths_from_samples(counts)):
        assert lengths.mean == pytest.approx(136.06, abs=0.01)
        assert (lengths.quantile(0.5), lengths.quantile(0.99), lengths.maximum) == (128.0, 128.0, 8192.0)
    drawn = 128.0 + 4 / 1001 * (8192 - 128)  # a batch of four holds the long one about once in 250: 160.2
    assert declared.expected_longest(4) == pytest.approx(drawn, rel=0.02)


@given(
    mean=st.floats(1, 5000),
    p99_ratio=st.floats(1, 40),
    max_ratio=st.floats(1, 40),
    batch=st.integers(1, 512),
    limit=st.floats(1, 1e5),
)
def test_any_declared_numbers_give_a_sound_distribution(
    mean: float, p99_ratio: float, max_ratio: float, batch: int, limit: float
) -> None:
    lengths = lengths_declared(mean, mean * p99_ratio, mean * p99_ratio * max_ratio)
    assert list(lengths.quantiles) == sorted(lengths.quantiles)
    assert all(1.0 <= q <= lengths.maximum for q in lengths.quantiles)
    assert 1.0 <= lengths.expected_longest(batch) <= max(lengths.maximum, mean)
    cut = lengths.truncated(limit)
    assert 1.0 <= cut.mean <= max(min(mean, limit), 1.0) * (1 + 1e-9)
    assert cut.maximum <= max(limit, 1.0)
