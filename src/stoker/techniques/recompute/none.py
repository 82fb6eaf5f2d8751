"""No recomputation: everything that backward needs is kept."""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from stoker.core.ledger import Ledger

if TYPE_CHECKING:
    import torch


class NoRecompute:
    """Leaves the ledger and the model as they are."""

    __slots__ = ()

    name: ClassVar[str] = "none"

    def apply(self, ledger: Ledger) -> Ledger:
        return replace(ledger, passes=(*ledger.passes, f"recompute:{self.name}"))

    def attach(self, model: "torch.nn.Module") -> None:
        return None
