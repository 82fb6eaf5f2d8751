"""Proves that a master split into bf16 weight and 16-bit remainder loses nothing, on every pattern that matters."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.engine.tiers.split import join, split_into

_LOWS = np.array([0, 1, 2, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0x8002, 0xFFFE, 0xFFFF], dtype=np.uint32)


def _both(bits: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    master = torch.from_numpy(bits.astype(np.uint32).view(np.float32).copy())
    weight = torch.empty(len(bits), dtype=torch.bfloat16)
    remainder = torch.empty(len(bits), dtype=torch.int16)
    split_into(master, weight, remainder)
    return weight, remainder, join(weight, remainder).numpy().view(np.uint32)


def test_every_high_half_with_every_low_half_at_an_edge_comes_back_bit_for_bit() -> None:
    """65,536 high halves (all signs, exponents, denormals, infinities) x ten low halves round the ties."""
    bits = (np.arange(65536, dtype=np.uint32)[:, None] << 16 | _LOWS).ravel()
    weight, remainder, back = _both(bits)
    values = bits.view(np.float32)
    number = ~np.isnan(values)
    assert number.sum() > 640_000 and (back[number] == bits[number]).all()
    assert np.isnan(back[~number].view(np.float32)).all() and weight[torch.from_numpy(~number)].isnan().all()
    assert (remainder[torch.from_numpy(~number)] == 0).all()


def test_every_low_half_of_some_high_halves_comes_back() -> None:
    """All 65,536 low halves: zero, denormals, one, the largest finite numbers, both signs."""
    highs = np.array([0, 1, 0x007F, 0x0080, 0x3F80, 0x7F7F, 0x8000, 0x8001, 0xBF80, 0xFF7F], dtype=np.uint32)
    bits = (highs[:, None] << 16 | np.arange(65536, dtype=np.uint32)).ravel()
    _weight, _remainder, back = _both(bits)
    assert (back == bits).all()


def test_the_weight_is_the_nearest_and_ties_go_away_from_zero() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 200_000, dtype=np.uint64).astype(np.uint32)
    bits = np.concatenate([bits, (bits & 0xFFFF0000) | 0x8000])
    values = bits.view(np.float32)
    bits = bits[np.isfinite(values)]
    weight, _remainder, _back = _both(bits)
    even = torch.from_numpy(bits.view(np.float32).copy()).to(torch.bfloat16)
    tie = torch.from_numpy((bits & 0xFFFF) == 0x8000)
    assert torch.equal(weight[~tie].view(torch.int16), even[~tie].view(torch.int16))
    assert (weight[tie].float().abs() >= even[tie].float().abs()).all()
    assert (weight[tie] != even[tie]).any()  # so rounding to even would have lost something


@pytest.mark.parametrize(
    "bits", [0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FC00000, 0xFFC01234, 0x7FBFFFFF, 0x7FFF8000, 0xFFFF8000]
)
def test_a_nan_stays_one(bits: int) -> None:
    """0x7FFFFFFF, CUDA's own NaN, would round half up to 0x8000: -0.0, a silent zero."""
    weight, _remainder, back = _both(np.array([bits], dtype=np.uint32))
    assert weight.isnan().all() and np.isnan(back.view(np.float32)).all()


@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x00000000, 0x80000000, 0x7F7FFFFF, 0x00000001, 0x807FFFFF])
def test_infinities_zeros_and_denormals(bits: int) -> None:
    weight, _remainder, back = _both(np.array([bits], dtype=np.uint32))
    assert back[0] == bits
    assert bool(torch.signbit(weight)[0]) == bool(bits >> 31)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=33))
def test_any_patterns_come_back(bits: list[int]) -> None:
    array = np.array(bits, dtype=np.uint32)
    _weight, _remainder, back = _both(array)
    nan = np.isnan(array.view(np.float32))
    assert (back[~nan] == array[~nan]).all() and np.isnan(back[nan].view(np.float32)).all()
