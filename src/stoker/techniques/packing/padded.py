"""No packing: every sample is padded to the longest one of the data (at most `train.seq_len`)."""

from collections.abc import Sequence
from typing import ClassVar

from stoker.core.profile import LengthDistribution


class Padded:
    """One shape throughout; most of it padding where lengths vary."""

    __slots__ = ()

    name: ClassVar[str] = "none"

    def mean_tokens(self, lengths: LengthDistribution, micro_batch_size: int, global_batch_size: int) -> float:
        """Samples times the longest length."""
        return micro_batch_size * lengths.maximum

    def peak_tokens(self, lengths: LengthDistribution, micro_batch_size: int) -> tuple[float, float]:
        """The same, and the longest length."""
        return micro_batch_size * lengths.maximum, lengths.maximum

    def micro_batches(self, lengths: Sequence[int], samples: Sequence[int], micro_batch_size: int) -> list[list[int]]:
        """`samples` in their order, cut into pieces."""
        return [list(samples[i : i + micro_batch_size]) for i in range(0, len(samples), micro_batch_size)]

    def padded_length(self, batch: Sequence[int], longest: int) -> int:
        """The longest of all, whatever the batch holds."""
        return longest
