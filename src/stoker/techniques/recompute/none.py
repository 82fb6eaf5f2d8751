"""No recomputation: everything that backward needs is kept."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from stoker.core.ledger import Ledger

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRecompute:
    """Leaves the ledger and the model as they are."""

    name: ClassVar[str] = "none"

    def apply(self, ledger: Ledger) -> Ledger:
        return replace(ledger, passes=(*ledger.passes, f"recompute:{self.name}"))

    def attach(self, model: "torch.nn.Module") -> None:
        return None
