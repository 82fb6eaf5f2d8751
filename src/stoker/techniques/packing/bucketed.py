"""Length buckets: the samples of one optimizer step are sorted by length and cut into alike micro-batches.

Which samples a step holds is fixed by the data order, so the learning curve stays what it was; only padding goes.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

from stoker.core.profile import LengthDistribution

_TOP_GROUPS = 12  # the longest micro-batches of a step are priced one by one: there the lengths fall fast
_SPREAD_GROUPS = 12  # of the others, evenly spaced ones stand for their neighbours


class Bucketed:
    """Longest micro-batch first: the peak comes early and later ones fit into its memory."""

    __slots__ = ()

    name: ClassVar[str] = "bucketed"

    def mean_tokens(self, lengths: LengthDistribution, micro_batch_size: int, global_batch_size: int) -> float:
        """Samples times the mean of the longest length of each micro-batch of a sorted global batch."""
        return micro_batch_size * mean_bucket_length(lengths, micro_batch_size, global_batch_size)

    def peak_tokens(self, lengths: LengthDistribution, micro_batch_size: int) -> tuple[float, float]:
        """A micro-batch around the longest sample, padded to it (case 8)."""
        return micro_batch_size * lengths.maximum, lengths.maximum

    def micro_batches(self, lengths: Sequence[int], samples: Sequence[int], micro_batch_size: int) -> list[list[int]]:
        """`samples` by falling length (equal ones in data order), cut into pieces."""
        ordered = sorted(samples, key=lambda sample: -lengths[sample])
        return [ordered[i : i + micro_batch_size] for i in range(0, len(ordered), micro_batch_size)]

    def padded_length(self, batch: Sequence[int], longest: int) -> int:
        """The longest of the batch."""
        return max(batch)


@lru_cache(maxsize=1024)
def mean_bucket_length(lengths: LengthDistribution, micro_batch_size: int, global_batch_size: int) -> float:
    """Mean over micro-batches of E[longest]: of n sorted samples, every micro_batch_size-th from the top.

    The k-th smallest of n uniform variables is Beta(k, n - k + 1); E[Q(U)] is taken by three-point Gauss-Hermite
    around its mean, the very longest exactly (`expected_longest`). Pinned against simulation in
    tests/unit/test_techniques_packing.py.
    """
    total = max(global_batch_size, micro_batch_size)
    groups = max(1, total // micro_batch_size)
    top = min(groups, _TOP_GROUPS)
    length = sum(_longest_of_group(lengths, group, micro_batch_size, total) for group in range(top))
    rest = groups - top
    if rest:
        points = min(rest, _SPREAD_GROUPS)
        middles = [top + int((i + 0.5) * rest / points) for i in range(points)]
        length += rest / points * sum(_longest_of_group(lengths, g, micro_batch_size, total) for g in middles)
    return length / groups


def _longest_of_group(lengths: LengthDistribution, group: int, micro_batch_size: int, total: int) -> float:
    return _expected_order_statistic(lengths, total - group * micro_batch_size, total)


def _expected_order_statistic(lengths: LengthDistribution, k: int, n: int) -> float:
    if k >= n:
        return lengths.expected_longest(n)
    mean = k / (n + 1)
    deviation = math.sqrt(k * (n - k + 1) / ((n + 1) ** 2 * (n + 2)))
    step = math.sqrt(3.0) * deviation
    return (lengths.quantile(mean - step) + 4.0 * lengths.quantile(mean) + lengths.quantile(mean + step)) / 6.0
