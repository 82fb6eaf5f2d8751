"""Exact AdamW on a piece of flat state, one correctly rounded operation after the other.

    m <- m + (1 - b1) (g - m)      v <- b2 v + (1 - b2) g g      p <- (1 - lr wd) p - (step m) / (sqrt(v) / c2 + eps)

with g the gradient times the clip coefficient in fp32, step = lr / (1 - b1^t), c2 = sqrt(1 - b2^t): Loshchilov and
Hutter (1711.05101) as torch orders it. Every line is a product, sum, quotient or root, each rounded to fp32 by IEEE
754, no fused multiply-add: so the result depends neither on how pieces are cut, nor on the vector width, nor on whether
a CPU or a GPU computes it. Scalars are rounded to fp32 once, on the host, in float64 arithmetic before.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from stoker.engine.tiers.split import join, split_into

CPU_CHUNK_ELEMENTS = 256 * 1024  # seven fp32 arrays of it stay near a core's cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What every parameter shares. Raises ValueError for betas outside [0, 1)."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if not (0.0 <= self.beta1 < 1.0 and 0.0 <= self.beta2 < 1.0):
            raise ValueError(f"betas {self.beta1}, {self.beta2} must be in [0, 1)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalars:
    """The numbers of one update, exact to fp32. `grad_scale`: the clip coefficient."""

    grad_scale: float
    blend1: float
    beta2: float
    blend2: float
    keep: float
    step_size: float
    inverse_root2: float
    eps: float


def scalars_of(rule: Rule, *, lr: float, weight_decay: float, step: int, grad_scale: float) -> Scalars:
    """Scalars of update number `step`, from 1."""
    return Scalars(
        grad_scale=grad_scale,
        blend1=1.0 - rule.beta1,
        beta2=rule.beta2,
        blend2=1.0 - rule.beta2,
        keep=1.0 - lr * weight_decay,
        step_size=lr / (1.0 - rule.beta1**step),
        inverse_root2=1.0 / math.sqrt(1.0 - rule.beta2**step),
        eps=rule.eps,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Flat views [n] of one run of parameters with the same scalars, all on one device.

    `weight` and `grad`: bf16 with int16 `remainder`, or fp32 with `remainder` None. `first`, `second`: fp32 moments.
    """

    weight: torch.Tensor
    grad: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor
    remainder: torch.Tensor | None

    def cut(self, start: int, stop: int) -> "Span":
        """The elements from `start` to `stop`."""
        return Span(
            weight=self.weight[start:stop],
            grad=self.grad[start:stop],
            first=self.first[start:stop],
            second=self.second[start:stop],
            remainder=None if self.remainder is None else self.remainder[start:stop],
        )


def step_span(span: Span, scalars: Scalars) -> None:
    """Update `span` in place: the fused kernel on CUDA where Triton is there, else the eager operations."""
    if span.weight.is_cuda and (kernel := _fused()) is not None:
        kernel(span, scalars)
        return
    step_eager(span, scalars)


@torch.no_grad()
def step_eager(span: Span, scalars: Scalars) -> None:
    """Update `span` in place by torch operations; about five fp32 temporaries of its size."""
    grad = span.grad.to(torch.float32)
    if scalars.grad_scale != 1.0:
        grad = grad * scalars.grad_scale
    part = grad - span.first
    span.first.add_(part.mul_(scalars.blend1))
    torch.mul(grad, grad, out=part)
    span.second.mul_(scalars.beta2).add_(part.mul_(scalars.blend2))
    _root(span.second, part)
    part.mul_(scalars.inverse_root2).add_(scalars.eps)
    change = (span.first * scalars.step_size).div_(part)
    if span.remainder is None:
        span.weight.mul_(scalars.keep).sub_(change)
        return
    master = join(span.weight, span.remainder)
    master.mul_(scalars.keep).sub_(change)
    split_into(master, span.weight, span.remainder)


def _root(values: torch.Tensor, result: torch.Tensor) -> None:
    """Correctly rounded roots. torch's on a CPU are MKL's, of which every fifth is off by one bit (measured, 2.13)."""
    if values.device.type == "cpu":
        np.sqrt(values.numpy(), out=result.numpy())
    else:
        torch.sqrt(values, out=result)


def step_in_dram(span: Span, scalars: Scalars, run: Callable[[list[Callable[[], None]]], None]) -> None:
    """`step_eager` in chunks that stay in cache; `run` executes the chunks, on threads or one after another."""
    size = span.weight.numel()
    cuts = [span.cut(start, min(start + CPU_CHUNK_ELEMENTS, size)) for start in range(0, size, CPU_CHUNK_ELEMENTS)]
    run([lambda part=part: step_eager(part, scalars) for part in cuts])  # type: ignore[misc]


@cache
def _fused() -> Callable[[Span, Scalars], None] | None:
    try:
        from stoker.engine.tiers.adamw_kernel import step_fused
    except ImportError:
        return None
    return step_fused
