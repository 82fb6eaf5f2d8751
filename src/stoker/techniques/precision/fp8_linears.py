"""Linears of a real model's blocks to torchao's fp8 ones, in place: the torch half of `fp8`."""

from typing import Any, Final

import torch
from torch import nn

from stoker.techniques.names import is_block_name, plain_name
from stoker.techniques.precision.fp8 import MULTIPLE

_UNITS: Final = (8, 9)  # compute capability


def multiply_in_fp8(model: nn.Module) -> None:
    """Swaps every linear inside the blocks whose sides the units take; adapters and 4-bit weights stay."""
    from torchao import float8

    convert: Any = float8.convert_to_float8_training
    config: Any = float8.Float8LinearConfig
    convert(model, config=config(emulate=not _has_units()), module_filter_fn=_is_taken)


def _has_units() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= _UNITS


def _is_taken(module: nn.Module, name: str) -> bool:
    """`base_layer` is an adapted linear's own; `name` is the path as torchao walks it."""
    if type(module) is not nn.Linear or "lora_" in name or not is_block_name(plain_name(name)):
        return False
    return module.in_features % MULTIPLE == 0 and module.out_features % MULTIPLE == 0
