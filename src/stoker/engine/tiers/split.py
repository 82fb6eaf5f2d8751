"""An fp32 master as its bf16 weight and a signed 16-bit remainder: 4 bytes for both, and nothing lost.

The weight is the master rounded to 16 bits with ties away from zero ("half up" in magnitude): bits (x + 0x8000) >> 16.
The remainder is the master's low half read as a signed number, so that weight bits x 65536 + remainder = master bits
for every pattern. Rounding to even would need one bit more: at a tie it sometimes goes down, and +0x8000 does not fit.
A NaN is made bf16's quiet NaN with remainder 0, since half-up rounding would carry 0x7FFFFFFF over into -0.0.
Docs: docs/math.md, "Tier engine". Pinned by tests/engine/test_tiers_split.py.
"""

import sys

import torch

_HALF = 0x8000
_QUIET_NAN = 0x7FC0
_LOW, _HIGH = (0, 1) if sys.byteorder == "little" else (1, 0)


def join(weight: torch.Tensor, remainder: torch.Tensor) -> torch.Tensor:
    """The fp32 masters of bf16 `weight` [n] and int16 `remainder` [n]: a new tensor."""
    master = torch.zeros(weight.numel(), dtype=torch.int32, device=weight.device)
    master.view(torch.int16).view(-1, 2)[:, _HIGH].copy_(weight.view(torch.int16))
    return master.add_(remainder).view(torch.float32)


def split_into(master: torch.Tensor, weight: torch.Tensor, remainder: torch.Tensor) -> None:
    """Write fp32 `master` [n] into bf16 `weight` [n] and int16 `remainder` [n]; `master` may be overwritten."""
    invalid = master.isnan()
    bits = master.view(torch.int32)
    halves = bits.view(torch.int16).view(-1, 2)
    remainder.copy_(halves[:, _LOW])
    bits.add_(_HALF)
    weight.view(torch.int16).copy_(halves[:, _HIGH])
    if master.is_cuda or bool(invalid.any()):  # on a GPU asking would make the host wait
        remainder.masked_fill_(invalid, 0)
        weight.view(torch.int16).masked_fill_(invalid, _QUIET_NAN)
