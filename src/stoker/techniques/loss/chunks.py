"""Cross-entropy over chunks of tokens, in torch: what `chunked` builds.

For a plain linear head, one autograd function keeps the hidden states only and computes logits again in backward, a
chunk at a time, with the weight's gradient summed in fp32. Any other head (an adapter on it, a quantised one) goes
through torch.utils.checkpoint a chunk at a time. Within a chunk the fp32 copy becomes its own gradient in place.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

IGNORED = -100


def chunked_cross_entropy(
    hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor, chunk_tokens: int
) -> torch.Tensor:
    """Sum over labels != -100 in fp32. hidden [..., H], labels [...]; tokens without a label are never projected."""
    states, targets = hidden.reshape(-1, hidden.shape[-1]), labels.reshape(-1)
    plain = type(head) is nn.Linear and not head._forward_hooks and not head._forward_pre_hooks
    if plain and not _is_sharded(head.weight):  # type: ignore[arg-type]
        weight, bias = head.weight, head.bias
        if torch.is_autocast_enabled(states.device.type):
            dtype = torch.get_autocast_dtype(states.device.type)
            states, weight = states.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        with torch.autocast(states.device.type, enabled=False):
            return _LinearCrossEntropy.apply(states, weight, bias, targets, chunk_tokens)  # type: ignore[no-any-return,no-untyped-call]
    total = torch.zeros((), dtype=torch.float32, device=hidden.device)
    for start in range(0, len(targets), chunk_tokens):
        piece = slice(start, start + chunk_tokens)
        total = total + checkpoint(_chunk_loss, states[piece], head, targets[piece], use_reentrant=False)
    return total


def _is_sharded(weight: torch.Tensor) -> bool:
    return type(weight) is not nn.Parameter or hasattr(weight, "placements")


def _chunk_loss(states: torch.Tensor, head: nn.Module, targets: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = _SumCrossEntropy.apply(head(states), targets)  # type: ignore[no-untyped-call]
    return loss


def _loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Summed cross-entropy of fp32 `logits` [N, V]."""
    return functional.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")


def _gradient_in_place(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """fp32 logits [N, V] turned into softmax - one-hot, rows without a label zero.

    Step by step in place: torch's logsumexp would hold two more tensors of this size on a GPU (measured).
    """
    counted = targets != IGNORED
    logits.sub_(logits.amax(dim=-1, keepdim=True)).exp_()
    logits.div_(logits.sum(dim=-1, keepdim=True))
    rows = torch.arange(len(targets), device=targets.device)
    logits[rows, targets.clamp(min=0)] -= 1.0
    return logits.mul_(counted.unsqueeze(-1))


class _SumCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy that keeps the logits in their own format only."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(logits, targets)
        return _loss_of(logits.float(), targets)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        logits, targets = ctx.saved_tensors
        gradient = _gradient_in_place(logits.to(torch.float32, copy=True), targets)
        return gradient.mul_(grads[0]).to(logits.dtype), None


class _LinearCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of states @ weight.T + bias, a chunk at a time in both directions."""

    @staticmethod
    def forward(
        ctx: Any,
        states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        chunk_tokens: int,
    ) -> torch.Tensor:
        kept = (targets != IGNORED).nonzero().squeeze(-1)
        ctx.save_for_backward(states, weight, bias, targets, kept)
        ctx.chunk_tokens = chunk_tokens
        total = torch.zeros((), dtype=torch.float32, device=states.device)
        for rows in torch.split(kept, chunk_tokens):
            total += _loss_of(functional.linear(states[rows], weight, bias).float(), targets[rows])
        return total

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        states, weight, bias, targets, kept = ctx.saved_tensors
        needs_states, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_states = torch.zeros_like(states) if needs_states else None
        grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device) if needs_weight else None
        grad_bias = torch.zeros(weight.shape[0], dtype=torch.float32, device=weight.device) if needs_bias else None
        for rows in torch.split(kept, ctx.chunk_tokens):
            piece = states[rows]
            wide = _gradient_in_place(functional.linear(piece, weight, bias).to(torch.float32), targets[rows])
            wide.mul_(grads[0])
            if grad_bias is not None:
                grad_bias += wide.sum(dim=0)
            gradient = wide.to(states.dtype)
            del wide
            if grad_states is not None:
                grad_states[rows] = gradient @ weight
            if grad_weight is not None:
                _add_product(grad_weight, gradient.t(), piece)
        return (
            grad_states,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(bias.dtype),
            None,
            None,
        )


def _add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """total (fp32) += left @ right; on CUDA accumulated in fp32 also where the factors are 16-bit.

    Elsewhere the product of one chunk is rounded to 16 bits first, as an ordinary backward would round it.
    """
    if left.dtype == torch.float32:
        total.addmm_(left, right)
        return
    if total.is_cuda:
        try:
            torch.addmm(total, left, right, out_dtype=torch.float32, out=total)
            return
        except (TypeError, RuntimeError):  # a torch or a GPU without mixed-width products
            pass
    total.add_(left @ right)
