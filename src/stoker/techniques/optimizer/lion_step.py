"""Lion as a torch optimizer, a tensor at a time: one temporary of the tensor's size (2302.06675, algorithm 2)."""

from typing import Any

import torch


class LionOptimizer(torch.optim.Optimizer):
    """update = sign(b1 m + (1 - b1) g); p = p (1 - lr wd) - lr update; m = b2 m + (1 - b2) g."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            first, second = group["betas"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state["exp_avg"] = torch.zeros_like(param)
                moment = state["exp_avg"]
                update = torch.lerp(param.grad, moment, first).sign_()
                param.mul_(1.0 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"])
                moment.lerp_(param.grad, 1.0 - second)
