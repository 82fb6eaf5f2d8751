"""One optimizer update: unscale, measure the true norm, clip, step; nothing is applied when a number is not finite.

The norm is of the unscaled gradient in fp32, over all trainable parameters, clipped by max_norm / (norm + 1e-6)
at most 1, as torch does it (case 23). On CUDA the decision whether to apply stays on the device where the fused
optimizers allow it, so that the host does not wait at every step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from stoker.engine.loss_scale import LossScale
from stoker.techniques.precision.masters import MasterWeightOptimizer


@dataclass(frozen=True, slots=True)
class Update:
    """`norm`: unscaled gradient norm, on the device. `applied`: False after an fp16 overflow.

    `finite`: what the host knows: True, False, or None where only the device knows yet.
    """

    norm: torch.Tensor
    applied: bool
    finite: bool | None


class Updater:
    """Applies accumulated gradients. `updates` counts those applied; the learning rate follows it alone."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[torch.nn.Parameter],
        *,
        factor: Callable[[int], float],
        max_grad_norm: float,
        scaler: LossScale | None = None,
        updates: int = 0,
    ) -> None:
        self.optimizer = optimizer
        self.scaler = scaler
        self.updates = updates
        self._parameters = [p for p in parameters if p.requires_grad]
        self._factor = factor
        self._max_norm = max_grad_norm
        device = self._parameters[0].device
        self._bad = torch.zeros((), device=device)  # 1 from the first step that was not finite
        self._first_bad = torch.full((), -1, dtype=torch.int64, device=device)
        self._inner: Sequence[torch.optim.Optimizer] = getattr(optimizer, "inner", (optimizer,))
        fused = all(inner.defaults.get("fused") for inner in self._inner)
        self._guarded = device.type == "cuda" and scaler is None and fused
        for group in optimizer.param_groups:
            group.setdefault("peak_lr", group["lr"])

    @property
    def last_lr(self) -> float:
        """Learning rate of the last update, of the first parameter group."""
        return float(self.optimizer.param_groups[0]["peak_lr"]) * self._factor(max(0, self.updates - 1))

    def first_bad_step(self) -> int | None:
        """Number (from 1) of the first step that was not finite, where only the device knew; waits for the device."""
        step = int(self._first_bad) if self._guarded else -1
        return None if step < 0 else step

    def loss_factor(self, weight: float) -> float:
        """What a summed loss is multiplied by before backward: the loss scale over the step's units."""
        return (self.scaler.scale if self.scaler else 1.0) / weight

    def step(self, loss: torch.Tensor) -> Update:
        """Clip and apply the gradients; `loss` is the step's mean, on the device. Gradients are cleared."""
        grads = [p.grad for p in self._parameters if p.grad is not None]
        if self.scaler is not None:
            torch._foreach_mul_(grads, 1.0 / self.scaler.scale)
        norm = total_norm(grads)
        outcome = self._decide(norm, loss, grads)
        if outcome.applied:
            for group in self.optimizer.param_groups:
                group["lr"] = group["peak_lr"] * self._factor(self.updates)
            self.optimizer.step()
            self.updates += 1
            if self.scaler is not None:
                self.scaler.succeeded()
        self.optimizer.zero_grad(set_to_none=True)
        return outcome

    def _decide(self, norm: torch.Tensor, loss: torch.Tensor, grads: list[torch.Tensor]) -> Update:
        if self._guarded:
            bad = ~torch.isfinite(norm + loss)
            self._first_bad.copy_(torch.where(bad & (self._first_bad < 0), self.updates + 1, self._first_bad))
            self._bad.copy_(torch.maximum(self._bad, bad.float()))
            for inner in self._inner:
                inner.found_inf = self._bad  # type: ignore[attr-defined]  # read by torch's fused kernels
            self._clip(norm, grads)
            return Update(norm, applied=True, finite=None)
        loss_ok, norm_ok = torch.isfinite(torch.stack((loss, norm))).tolist()
        if loss_ok and norm_ok:
            self._clip(norm, grads)
            return Update(norm, applied=True, finite=True)
        if self.scaler is not None and loss_ok:
            self.scaler.overflowed(self.updates)
            return Update(norm, applied=False, finite=True)
        return Update(norm, applied=False, finite=False)

    def _clip(self, norm: torch.Tensor, grads: list[torch.Tensor]) -> None:
        if self._max_norm <= 0:
            return
        coefficient = (self._max_norm / (norm + 1e-6)).clamp(max=1.0)
        if isinstance(self.optimizer, MasterWeightOptimizer):
            self.optimizer.grad_scale = coefficient  # in fp32, so that 16-bit gradients are not rounded twice
        else:
            torch._foreach_mul_(grads, coefficient)


def total_norm(grads: Sequence[torch.Tensor]) -> torch.Tensor:
    """L2 norm over all gradients, fp32, on the device."""
    if not grads:
        return torch.zeros(())
    norms = torch._foreach_norm(list(grads), 2, dtype=torch.float32)
    total: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return total
