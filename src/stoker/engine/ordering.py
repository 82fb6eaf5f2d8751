"""Which sample comes when and which seed a draw uses: pure functions, so that a resume needs no saved generator.

Data order is a function of (seed, epoch, index) and random numbers of (seed, step, global micro-batch, unit) alone
(docs/architecture.md, "seed rule"): stopping, another number of ranks or another machine changes neither. Nothing
here uses a library's generator, whose streams may change between versions; tests/engine/test_ordering.py pins the
first ids for good.
"""

import hashlib
from array import array
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stoker.core.lr_schedule import steps_per_epoch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # Weyl increment of SplitMix64 (Steele, Lea, Flood 2014)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def epoch_order(seed: int, epoch: int, num_samples: int) -> Sequence[int]:
    """Sample indices of one epoch: a permutation of range(num_samples) that depends on the arguments alone.

    Index i gets the 64-bit key mix(mix(k0 + i G) xor k1), mix being SplitMix64's bijective finaliser, G its
    increment and (k0, k1) the halves of a SHA-256 of seed and epoch; the order is by ascending key. Equal keys
    cannot occur, as every step is a bijection of i. 8 bytes a sample; raises ValueError for negative arguments.
    """
    if epoch < 0 or num_samples < 0:
        raise ValueError(f"epoch {epoch} and num_samples {num_samples} must not be negative")
    return _order(seed, epoch, num_samples)[:]


def step_samples(seed: int, step: int, num_samples: int, global_batch_size: int) -> tuple[int, Sequence[int]]:
    """(epoch, sample indices) of optimizer step `step`, counted from 0; an epoch's last step may be smaller.

    The sets of all steps of an epoch are disjoint and cover it. Raises ValueError where an epoch holds no sample.
    """
    if num_samples < 1 or step < 0:
        raise ValueError(f"step {step} of {num_samples} samples by {global_batch_size}")
    epoch, index = divmod(step, steps_per_epoch(num_samples, global_batch_size))
    start = index * global_batch_size
    return epoch, _order(seed, epoch, num_samples)[start : start + global_batch_size]


def keyed_seed(seed: int, step: int, micro_batch: int, unit: int | str) -> int:
    """A 63-bit seed for the draws of one unit (block, dropout, augmentation) in one micro-batch of one step.

    `micro_batch` counts over all ranks of the step, so that a rank count changes no draw. Two different keys
    give unrelated seeds; torch's CPU generator reads the low 32 bits of them, CUDA's all.
    """
    return _digest_int("draw", seed, step, micro_batch, unit) >> 1


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, num_samples: int) -> "array[int]":
    keys = np.arange(num_samples, dtype=np.uint64) * _GOLDEN + np.uint64(_digest_int("order", seed, epoch, 0))
    keys = _mix(_mix(keys) ^ np.uint64(_digest_int("order", seed, epoch, 1)))
    result = array("q")
    result.frombytes(np.argsort(keys, kind="stable").astype(np.int64).tobytes())
    return result


def _mix(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    keys = (keys ^ (keys >> np.uint64(30))) * _MIX_1
    keys = (keys ^ (keys >> np.uint64(27))) * _MIX_2
    return keys ^ (keys >> np.uint64(31))


def _digest_int(*key: int | str) -> int:
    """First 64 bits of the SHA-256 of the key; types are part of it, so that 1 and "1" differ."""
    text = "stoker/1/" + "/".join(f"{type(part).__name__[0]}{part}" for part in key)
    return int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:8], "big")
