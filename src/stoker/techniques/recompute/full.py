"""Full recomputation: each block keeps its input only and runs its forward again in backward.

Memory 2 T h L plus one block's working set (2205.05198), time one more forward of every block.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from stoker.core.errors import ModelError
from stoker.core.i18n import _
from stoker.core.ledger import Ledger, ModuleGroup

if TYPE_CHECKING:
    import torch


class FullRecompute:
    """Hugging Face's gradient checkpointing, non-reentrant (it works with frozen inputs and DDP, case 21)."""

    __slots__ = ()

    name: ClassVar[str] = "full"

    def apply(self, ledger: Ledger) -> Ledger:
        """Marks every block that takes part in backward; embeddings, norms, heads and convolutions stay.

        Raises ModelError ST280 for a model without blocks, as `attach` does.
        """
        if not any(group.kind == "block" for group in ledger.groups):
            raise no_blocks(ledger.arch.name)
        return ledger.map_groups(_recomputed, by=f"recompute:{self.name}")

    def attach(self, model: "torch.nn.Module") -> None:
        """Switches recomputation on. Raises ModelError ST280 for a model that has no blocks to recompute."""
        from stoker.techniques.recompute.switch_on import enable_recompute

        enable_recompute(model)


def no_blocks(model: str) -> ModelError:
    """The error for a model whose code declares no repeated blocks."""
    return ModelError(
        "ST280",
        _("{model} has no blocks that can be recomputed").format(model=model),
        place="run.recompute",
        fix=_("use run.recompute: none"),
    )


def _recomputed(group: ModuleGroup) -> ModuleGroup:
    return replace(group, recomputed=True) if group.kind == "block" and group.in_backward else group
