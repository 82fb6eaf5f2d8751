"""The data profile: how many samples, how long, how many labels. Measured by `check`, or declared in the job.

Lengths are a quantile function, because what costs time is the mean of the longest of a batch, and what costs
memory is the longest of all: neither is the mean.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import NormalDist

from stoker.core.estimate import Source

_GRID = 201  # quantile points kept
_TAIL = 16  # points beyond the last cell but one: at 1 - 0.005 / 2^k


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthDistribution:
    """Token counts per sample as `quantiles` at equal probabilities 0..1 (ascending), `mean` beside it.

    `tail` refines the last cell, whose upper edge is the longest sample of all: with n cells, its k-th value
    (from 0) is the quantile at 1 - 1 / (n 2^(k+1)). Without it a straight line up to the one longest sample would
    make the longest of a batch up to twice too long.
    """

    quantiles: tuple[float, ...]
    mean: float
    tail: tuple[float, ...] = ()

    def __hash__(self) -> int:
        """Of a few points: hashing two hundred took as long as half an estimate, which looks lengths up by them."""
        middle = len(self.quantiles) // 2
        return hash((self.mean, self.quantiles[middle], self.quantiles[-1], len(self.quantiles)))

    @property
    def maximum(self) -> float:
        return self.quantiles[-1]

    def quantile(self, probability: float) -> float:
        """Length at `probability`, linear between grid points."""
        where = min(max(probability, 0.0), 1.0) * (len(self.quantiles) - 1)
        below = int(where)
        if self.tail and below >= len(self.quantiles) - 2:
            return self._tail_quantile(where - (len(self.quantiles) - 2))
        above = min(below + 1, len(self.quantiles) - 1)
        return self.quantiles[below] + (where - below) * (self.quantiles[above] - self.quantiles[below])

    def _tail_quantile(self, share: float) -> float:
        """Length at `share` (0..1) of the last cell, linear between its halvings."""
        points = (self.quantiles[-2], *self.tail, self.quantiles[-1])
        if share >= 1.0:
            return points[-1]
        halvings = int(-math.log2(1.0 - share))  # 0 in the first half, 1 in the next quarter, ...
        if halvings >= len(self.tail):
            halvings, start, end = len(self.tail), 1.0 - 0.5 ** len(self.tail), 1.0
        else:
            start, end = 1.0 - 0.5**halvings, 1.0 - 0.5 ** (halvings + 1)
        return points[halvings] + (share - start) / (end - start) * (points[halvings + 1] - points[halvings])

    def truncated(self, limit: float) -> "LengthDistribution":
        """Lengths cut at `limit` tokens."""
        cut = tuple(min(q, limit) for q in self.quantiles)
        if cut[-1] == self.quantiles[-1]:
            return self
        mean = min(max(1.0, self.mean - self._mean_excess(limit)), max(limit, 1.0))
        return LengthDistribution(quantiles=cut, mean=mean, tail=tuple(min(q, limit) for q in self.tail))

    def _mean_excess(self, limit: float) -> float:
        """Mean of max(0, length - limit): trapezoids over the cells, the last one by its halvings."""
        cells = len(self.quantiles) - 1
        edges = [*self.quantiles[:-1], *self.tail, self.quantiles[-1]]
        last = [0.5 ** (k + 1) for k in range(len(self.tail))] + [0.5 ** len(self.tail)]
        widths = [1.0] * (cells - 1) + last
        over = [max(0.0, edge - limit) for edge in edges]
        return sum(w * (a + b) / 2.0 for w, (a, b) in zip(widths, pairwise(over), strict=True)) / cells

    def expected_longest(self, batch: int) -> float:
        """Mean length of the longest of `batch` independent samples: maximum less the integral of p^batch over Q(p).

        Exact for a quantile function Q that is straight between its points; never below the mean of one sample.
        """
        if batch <= 1:
            return self.mean
        power = batch + 1
        below = 0.0
        for (p, length), (q, longer) in pairwise(self._points()):
            if longer > length:
                below += (longer - length) / (q - p) * (q**power - p**power) / power
        return min(max(self.maximum - below, self.mean), self.maximum)

    def _points(self) -> Iterator[tuple[float, float]]:
        """(probability, length) of the grid, its last cell by its halvings."""
        cells = len(self.quantiles) - 1
        yield from ((index / cells, length) for index, length in enumerate(self.quantiles[:-1]))
        yield from ((1.0 - 0.5 ** (k + 1) / cells, length) for k, length in enumerate(self.tail))
        yield 1.0, self.quantiles[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataProfile:
    """What planning needs to know about the data. `source`: measured (tokenised) or assumed (declared)."""

    num_samples: int
    lengths: LengthDistribution
    num_eval_samples: int = 0
    num_labels: int | None = None
    bytes_per_sample: float = 0.0
    label_counts: Mapping[str, int] = field(default_factory=dict)
    source: Source = Source.ASSUMED


def lengths_from_samples(counts: Sequence[int]) -> LengthDistribution:
    """The distribution of measured token counts (any order, at least one)."""
    ordered = sorted(counts)
    last = len(ordered) - 1
    grid = tuple(float(ordered[round(i / (_GRID - 1) * last)]) for i in range(_GRID))
    tail = tuple(float(ordered[round(p * last)]) for p in _tail_probabilities())
    return LengthDistribution(quantiles=grid, mean=sum(ordered) / len(ordered), tail=tail)


def _tail_probabilities() -> list[float]:
    return [1.0 - 0.5**k / (_GRID - 1) for k in range(1, _TAIL + 1)]


def lengths_declared(mean: float, p99: float, maximum: float) -> LengthDistribution:
    """A log-normal with the declared mean and 99th percentile, ending at `maximum`.

    Solves mu + sigma^2/2 = ln mean and mu + 2.3263 sigma = ln p99 for the smaller sigma; where p99 is more than
    e^2.7 times the mean no log-normal fits, and the widest possible sigma (2.3263) is taken. A mean above p99 comes of
    a few samples of `maximum` among samples of p99.
    """
    if mean > p99:
        return _few_long(mean, p99, maximum)
    z99 = NormalDist().inv_cdf(0.99)
    ratio = math.log(max(p99, mean) / mean)
    sigma = z99 - math.sqrt(max(z99 * z99 - 2.0 * ratio, 0.0))
    mu = math.log(mean) - sigma * sigma / 2.0
    norm = NormalDist(mu, max(sigma, 1e-9))
    inner = [math.exp(norm.inv_cdf(i / (_GRID - 1))) for i in range(1, _GRID - 1)]
    body = [min(max(value, 1.0), maximum) for value in inner]
    grid = (body[0], *body, float(maximum))
    tail = tuple(min(max(math.exp(norm.inv_cdf(p)), 1.0), maximum) for p in _tail_probabilities())
    return LengthDistribution(quantiles=grid, mean=mean, tail=tail)


def _few_long(mean: float, usual: float, maximum: float) -> LengthDistribution:
    """Samples of `usual` tokens, and as many of `maximum` as make the mean (case 8: one in 1,001)."""
    longer = (mean - usual) / (maximum - usual) if maximum > usual else 0.0
    grid = (float(usual),) * (_GRID - 1) + (float(maximum),)
    tail = tuple(float(maximum if p > 1.0 - longer else usual) for p in _tail_probabilities())
    return LengthDistribution(quantiles=grid, mean=mean, tail=tail)


def lengths_constant(tokens: int) -> LengthDistribution:
    """Every sample has `tokens` tokens (images; packed sequences)."""
    return LengthDistribution(quantiles=(float(tokens), float(tokens)), mean=float(tokens))
