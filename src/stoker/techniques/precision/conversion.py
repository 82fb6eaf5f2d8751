"""Parameters to their number format, in place. Buffers stay as they are: rotary frequencies and batch statistics
lose what they hold below fp32."""

from typing import Final

import torch
from torch import nn

_DTYPES: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_BATCH_NORMS: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def torch_dtype(name: str) -> torch.dtype:
    """torch's dtype of fp32, bf16 or fp16."""
    return _DTYPES[name]


def convert_parameters(model: nn.Module, *, base: str, compute: str) -> None:
    """Every floating parameter to `base`; adapters (peft's `lora_*`) and batch norms to fp32.

    In a quantised model (4-bit weights are integers) what is frozen keeps its width: 16 bits in the format `compute`,
    or fp32; beside fp32 ones, and to compute in fp32, everything that is no 4-bit weight is fp32.
    """
    wide = {id(p) for module in model.modules() if isinstance(module, _BATCH_NORMS) for p in module.parameters()}
    quantised = any(not p.is_floating_point() for p in model.parameters())
    if quantised:
        all_wide = compute == "fp32" or any(_is_wide_and_frozen(p) for p in model.parameters())
        base = "fp32" if all_wide else base
    for name, param in model.named_parameters():
        if not param.is_floating_point():
            continue
        dtype = torch_dtype(compute if quantised and not all_wide and not param.requires_grad else base)
        target = torch.float32 if "lora_" in name or id(param) in wide else dtype
        if param.dtype != target:
            param.data = param.data.to(target)
            param.grad = None
    if quantised:
        from stoker.techniques.adapter.quantised import set_compute_dtype

        set_compute_dtype(model, torch_dtype(compute))


def _is_wide_and_frozen(param: nn.Parameter) -> bool:
    return param.dtype == torch.float32 and not param.requires_grad


def narrow_frozen_linears(model: nn.Module, compute_dtype: str) -> None:
    """Frozen linears beside adapters to the format in which autocast would compute them anyway.

    A weight that is also an embedding stays: a lookup is not autocast. A quantised model stays as it is.
    """
    params = dict(model.named_parameters())
    if not any("lora_" in name for name in params) or not all(p.is_floating_point() for p in params.values()):
        return
    lookups = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for module in model.modules():
        if not isinstance(module, nn.Linear):
            continue
        for param in module.parameters(recurse=False):
            if not param.requires_grad and param.is_floating_point() and id(param) not in lookups:
                param.data = param.data.to(torch_dtype(compute_dtype))
