"""fp32 masters beside 16-bit weights: the optimizer steps the masters and the weights are their rounding.

The step runs in pieces of at most 64 Mi elements, so that widening the gradients never needs a second full copy of
them: 256 MiB at most. Equal to torch's optimizer on fp32 masters, bit for bit (tests/contract).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.optim import Optimizer

PIECE_ELEMENTS: Final = 64 * 2**20
_OPTIONS: Final = ("lr", "weight_decay")
Build = Callable[[list[dict[str, Any]]], Optimizer]


class MasterWeightOptimizer(Optimizer):
    """Wraps the optimizer that `build` makes. fp32 parameters (adapters) are stepped directly.

    `grad_scale`: factor on every gradient of the next step, applied in fp32 (for clipping); reset to None by `step`.
    Learning rates and weight decay are read from `param_groups` at each step, so schedulers work as usual.
    """

    def __init__(self, build: Build, groups: list[dict[str, Any]]) -> None:
        super().__init__([dict(group) for group in groups], {})
        self.grad_scale: torch.Tensor | float | None = None
        self._masters: dict[torch.Tensor, torch.Tensor] = {}
        native, narrow = [], []
        for group in self.param_groups:
            options: dict[str, Any] = {key: group[key] for key in _OPTIONS if key in group}
            native.append({**options, **_chosen(group, wide=True)})
            chosen = _chosen(group, wide=False)
            narrow.append({**options, **chosen, "params": [self._new_master(p) for p in chosen["params"]]})
        self._native = build(native) if any(group["params"] for group in native) else None
        self._narrow = build(narrow) if self._masters else None
        self._pieces = _pieces(list(self._masters.items()))

    @property
    def masters(self) -> dict[torch.Tensor, torch.Tensor]:
        """16-bit parameter -> its fp32 master."""
        return self._masters

    @property
    def inner(self) -> tuple[Optimizer, ...]:
        """The optimizers that do the stepping: over fp32 parameters, over masters."""
        return tuple(optimizer for optimizer in (self._native, self._narrow) if optimizer is not None)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for optimizer in self.inner:
            for ours, theirs in zip(self.param_groups, optimizer.param_groups, strict=True):
                theirs.update({key: ours[key] for key in _OPTIONS if key in ours})
        if self._native is not None:
            self._scale_native(self._native)
            self._native.step()
        if self._narrow is not None:
            for piece in self._pieces:
                self._step_piece(self._narrow, piece)
        self.grad_scale = None

    @torch.no_grad()
    def refresh_masters(self) -> None:
        """Masters from the weights as they are now (after weights were loaded from elsewhere)."""
        for param, master in self._masters.items():
            master.copy_(param)

    def state_dict(self) -> dict[str, Any]:
        """State of the inner optimizers and the masters, in the order of the parameters; live tensors, no copies."""
        return {
            "inner": [optimizer.state_dict() for optimizer in self.inner],
            "masters": [master.detach() for master in self._masters.values()],
        }

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Puts back what `state_dict` gave. Raises ValueError where it is another model's."""
        saved, inner = list(state_dict["masters"]), list(state_dict["inner"])
        shapes = [tuple(tensor.shape) for tensor in saved]
        if shapes != [tuple(master.shape) for master in self._masters.values()] or len(inner) != len(self.inner):
            raise ValueError("masters of another model")
        for master, tensor in zip(self._masters.values(), saved, strict=True):
            master.copy_(tensor)
        for optimizer, state in zip(self.inner, inner, strict=True):
            optimizer.load_state_dict(state)

    def _new_master(self, param: torch.Tensor) -> torch.Tensor:
        master = param.detach().to(torch.float32).clone().requires_grad_(True)
        self._masters[param] = master
        return master

    def _scale_native(self, optimizer: Optimizer) -> None:
        if self.grad_scale is None:
            return
        for group in optimizer.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    param.grad.mul_(self.grad_scale)

    def _step_piece(self, optimizer: Optimizer, piece: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        ready = [(param, master) for param, master in piece if param.grad is not None]
        for param, master in ready:
            assert param.grad is not None
            master.grad = param.grad.to(torch.float32)
            if self.grad_scale is not None:
                master.grad.mul_(self.grad_scale)
        if not ready:
            return
        optimizer.step()
        for param, master in ready:
            param.copy_(master)
            master.grad = None


def _chosen(group: dict[str, Any], *, wide: bool) -> dict[str, Any]:
    """fp32 parameters of `group` (or the others), with their names: some optimizers treat an embedding apart."""
    index = [i for i, p in enumerate(group["params"]) if (p.dtype == torch.float32) == wide]
    return {key: [group[key][i] for i in index] for key in ("params", "names") if key in group}


def _pieces(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """`pairs` in runs of at most PIECE_ELEMENTS elements (one larger tensor is a run of its own)."""
    result: list[list[tuple[torch.Tensor, torch.Tensor]]] = []
    filled = PIECE_ELEMENTS
    for pair in pairs:
        if not result or filled + pair[0].numel() > PIECE_ELEMENTS:
            result.append([])
            filled = 0
        result[-1].append(pair)
        filled += pair[0].numel()
    return result
