"""Muon for hidden matrices and AdamW for the rest, behind one optimizer: torch's own, side by side."""

from collections.abc import Mapping
from typing import Any, Final

import torch

from stoker.techniques.names import is_block_name
from stoker.techniques.optimizer.fused import has_fused_step

_OPTIONS: Final = ("lr", "weight_decay")


class MuonBesideAdamW(torch.optim.Optimizer):
    """`param_groups` are the caller's, in order; learning rate and decay are read from them at each step.

    A group without `names` holds hidden matrices wherever it holds 2-D parameters.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__([dict(group) for group in groups], {})
        hidden: list[dict[str, Any]] = []
        rest: list[dict[str, Any]] = []
        for group in self.param_groups:
            options: dict[str, Any] = {key: group[key] for key in _OPTIONS if key in group}
            flags = [_is_hidden(p, name) for p, name in _named(group)]
            hidden.append({**options, "params": _where(group["params"], flags, True)})
            rest.append({**options, "params": _where(group["params"], flags, False)})
        self._halves: tuple[torch.optim.Optimizer, ...] = ()
        if any(group["params"] for group in hidden):
            self._halves += (torch.optim.Muon(hidden, adjust_lr_fn="match_rms_adamw"),)
        if any(group["params"] for group in rest):
            fused = has_fused_step(rest) or None
            self._halves += (torch.optim.AdamW(rest, betas=(0.9, 0.999), eps=1e-8, fused=fused),)

    @property
    def inner(self) -> tuple[torch.optim.Optimizer, ...]:
        """The optimizers that do the stepping."""
        return self._halves

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for half in self._halves:
            for ours, theirs in zip(self.param_groups, half.param_groups, strict=True):
                theirs.update({key: ours[key] for key in _OPTIONS if key in ours})
            half.step()

    def state_dict(self) -> dict[str, Any]:
        """State of both halves; live tensors, no copies."""
        return {"halves": [half.state_dict() for half in self._halves]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Puts back what `state_dict` gave. Raises ValueError where it is another model's."""
        halves = list(state_dict["halves"])
        if len(halves) != len(self._halves):
            raise ValueError("optimizer state of another model")
        for half, state in zip(self._halves, halves, strict=True):
            half.load_state_dict(state)


def _named(group: dict[str, Any]) -> list[tuple[torch.Tensor, str | None]]:
    params = group["params"]
    return list(zip(params, group.get("names") or [None] * len(params), strict=True))


def _is_hidden(param: torch.Tensor, name: str | None) -> bool:
    return param.ndim == 2 and (name is None or is_block_name(name))


def _where(params: list[torch.Tensor], flags: list[bool], wanted: bool) -> list[torch.Tensor]:
    return [p for p, flag in zip(params, flags, strict=True) if flag == wanted]
