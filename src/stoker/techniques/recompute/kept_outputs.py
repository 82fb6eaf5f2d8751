"""What selective recomputation keeps, told to torch: outputs of attention kernels and of every second product."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

_PRODUCTS: Final = frozenset(
    (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten._scaled_mm.default)
)
_ATTENTION: Final = frozenset(
    (
        torch.ops.aten._scaled_dot_product_flash_attention.default,
        torch.ops.aten._scaled_dot_product_efficient_attention.default,
        torch.ops.aten._scaled_dot_product_cudnn_attention.default,
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    )
)


_uncounted = ContextVar("uncounted", default=False)


class _EverySecond:
    """Counts products of one forward, and of its recomputation apart."""

    def __init__(self) -> None:
        self._seen = {False: 0, True: 0}

    def __call__(self, context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if operation in _ATTENTION:
            return CheckpointPolicy.MUST_SAVE
        if operation not in _PRODUCTS or _uncounted.get():
            return CheckpointPolicy.PREFER_RECOMPUTE
        again = bool(context.is_recompute)
        self._seen[again] += 1
        return CheckpointPolicy.MUST_SAVE if self._seen[again] % 2 else CheckpointPolicy.PREFER_RECOMPUTE


def selective_contexts() -> tuple[Any, Any]:
    """Contexts of one block's forward and of its recomputation."""
    contexts: tuple[Any, Any] = create_selective_checkpoint_contexts(_EverySecond())  # type: ignore[no-untyped-call]
    return contexts


def leave_weight_norms_out(model: nn.Module) -> None:
    """DoRA multiplies its factors to a matrix as large as the weight, for a norm: never to be kept."""
    for module in model.modules():
        product = getattr(module, "get_lora_weight", None)
        if callable(product):
            setattr(module, "get_lora_weight", _left_out(product))  # noqa: B010


def _left_out(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        token = _uncounted.set(True)
        try:
            return function(*args, **kwargs)
        finally:
            _uncounted.reset(token)

    return call
