"""Gradients of several micro-batches added in fp32 and rounded once: 4 bytes a 16-bit parameter while it lasts.

Adding bf16 gradients in bf16 loses what is smaller than 1/256 of the sum: eight micro-batches would already differ
from one batch. fp32 gradients accumulate where they are and need nothing here.
"""

from collections.abc import Iterable

import torch


class GradientAccumulator:
    """For one optimizer step: `add()` after each backward, `finish()` before the norm is taken.

    With one micro-batch a step (`micro_batches` 1) it does nothing and holds nothing.
    """

    def __init__(self, params: Iterable[torch.nn.Parameter], micro_batches: int) -> None:
        narrow = [p for p in params if p.requires_grad and p.dtype != torch.float32] if micro_batches > 1 else []
        self._sums: dict[torch.nn.Parameter, torch.Tensor | None] = dict.fromkeys(narrow)

    @torch.no_grad()
    def add(self) -> None:
        """Moves each 16-bit gradient into its fp32 sum."""
        for param, total in self._sums.items():
            if param.grad is None:
                continue
            if total is None:
                self._sums[param] = param.grad.to(torch.float32)
            else:
                total.add_(param.grad)
            param.grad = None

    @torch.no_grad()
    def finish(self) -> None:
        """Each sum, rounded once, becomes the parameter's gradient; the sums are let go."""
        for param, total in self._sums.items():
            if total is not None:
                param.grad = total.to(param.dtype)
                self._sums[param] = None

    def state_bytes(self) -> int:
        """Bytes of the sums now held."""
        return sum(total.numel() * total.element_size() for total in self._sums.values() if total is not None)
