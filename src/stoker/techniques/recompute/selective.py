"""Selective recomputation (2205.05198): only the attention core runs again, so the scores (5as/h) are not kept.

Fused attention does exactly that inside its kernel, so construction means switching the model to sdpa.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from stoker.core.ledger import Ledger
from stoker.techniques.attention.sdpa import without_scores

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectiveRecompute:
    """Under sdpa and flash it changes nothing; under eager attention it drops the scores."""

    name: ClassVar[str] = "selective"

    def apply(self, ledger: Ledger) -> Ledger:
        """Drops every tensor that grows with tokens times keys."""
        return ledger.map_groups(without_scores, by=f"recompute:{self.name}")

    def attach(self, model: "torch.nn.Module") -> None:
        """Switches eager attention to sdpa."""
        config = getattr(model, "config", None)
        if getattr(config, "_attn_implementation", None) == "eager":
            model.set_attn_implementation("sdpa")  # type: ignore[operator]
