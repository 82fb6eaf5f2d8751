"""bitsandbytes' AdamW over torch parameter groups: the torch half of `adamw_8bit` and the paged ones."""

from typing import Any

import torch
from bitsandbytes import optim

from stoker.techniques.names import is_embedding_name

_OPTIMIZERS: Any = optim  # bitsandbytes carries few types, and is not everywhere
_ADAMW: Any = _OPTIMIZERS.AdamW


class WideWhereNarrowHurts(_ADAMW):  # type: ignore[misc]  # bitsandbytes carries no types
    """AdamW whose vectors and embeddings (by the groups' `names`) keep fp32 states.

    bitsandbytes' own way to say so is a manager that outlives its parameters and knows them by address.
    """

    def __init__(self, groups: list[dict[str, Any]], *, eight_bit: bool, paged: bool) -> None:
        self._wide = {param for group in groups for param in _wide(group)}
        bits = 8 if eight_bit else 32
        super().__init__(groups, betas=(0.9, 0.999), eps=1e-8, optim_bits=bits, is_paged=paged)

    def get_config(self, gindex: int, pindex: int, group: dict[str, Any]) -> dict[str, Any]:
        """bitsandbytes' settings of one parameter."""
        config: dict[str, Any] = super().get_config(gindex, pindex, group)
        if self.param_groups[gindex]["params"][pindex] in self._wide:
            config["optim_bits"] = 32
        return config


def _wide(group: dict[str, Any]) -> list[torch.Tensor]:
    params = list(group["params"])
    names = list(group.get("names") or [""] * len(params))
    return [p for p, name in zip(params, names, strict=True) if p.ndim < 2 or is_embedding_name(name)]
