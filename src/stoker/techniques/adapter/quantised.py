"""Block linears of a real model to bitsandbytes' 4-bit ones, in place: the torch half of `qlora`."""

from typing import Any, Final

import bitsandbytes
import torch
from torch import nn

from stoker.techniques.adapter.modules import block_linears
from stoker.techniques.names import base_attribute

_LAYERS: Final[Any] = bitsandbytes.nn  # it carries few types, and is not everywhere
_LINEAR: Final[Any] = _LAYERS.Linear4bit
_WEIGHT: Final[Any] = _LAYERS.Params4bit


def quantise_blocks(model: nn.Module, *, double_quant: bool, wide: bool) -> None:
    """nf4 for every linear inside the blocks; other parameters become fp32 (`wide`) or bf16. All of them frozen.

    Weights are quantised where they lie, one at a time, from bf16: bitsandbytes unpacks to what it packed. What they
    compute in, `Precision.convert` says.
    """
    for name, linear in list(block_linears(model, base_attribute(model))):
        parent, _dot, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, _quantised(linear, double_quant=double_quant))
    setattr(model, "is_loaded_in_4bit", True)  # noqa: B010  # peft looks here for which of its layers to wrap with
    for param in model.parameters():
        param.requires_grad_(False)
        if param.is_floating_point():
            param.data = param.data.to(torch.float32 if wide else torch.bfloat16)


def _quantised(linear: nn.Module, *, double_quant: bool) -> nn.Module:
    weight, bias = linear.get_parameter("weight"), getattr(linear, "bias", None)
    matrix = weight.data if isinstance(linear, nn.Linear) else weight.data.T  # GPT-2 stores it the other way round
    rows, columns = matrix.shape
    result: nn.Module = _LINEAR(
        columns,
        rows,
        bias=bias is not None,
        quant_type="nf4",
        compress_statistics=double_quant,
        device=torch.device("meta"),
    )
    # else an evaluation on a CPU repacks the weights for good, and what is trained after it differs in the last bits
    setattr(result, "support_avx512bf16_for_cpu", False)  # noqa: B010
    narrow = matrix.to(torch.bfloat16).contiguous()
    held = _WEIGHT(narrow, requires_grad=False, quant_type="nf4", compress_statistics=double_quant, module=result)
    result.weight = held.to(weight.device)
    if bias is not None:
        result.bias = nn.Parameter(bias.data, requires_grad=False)
    return result


def set_compute_dtype(model: nn.Module, dtype: torch.dtype) -> None:
    """What 4-bit linears unpack to and multiply in."""
    for module in model.modules():
        if isinstance(module, _LINEAR):
            module.compute_dtype = dtype
            module.compute_type_is_set = True
            state = getattr(module.weight, "quant_state", None)
            if state is not None:
                state.dtype = dtype
