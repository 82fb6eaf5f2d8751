"""Full recomputation whose block inputs wait in host memory: on the device two at a time, 2 T h L bytes on the host.

Each input crosses PCIe once each way in a micro-batch, beside the computation: the copy out runs under the block's
forward, the copy in under the backward of the block above (it is fetched one block ahead).
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from stoker.core.ledger import Ledger
from stoker.techniques.recompute.full import FullRecompute

if TYPE_CHECKING:
    import torch


class OffloadedRecompute:
    """Like `full`, bit for bit."""

    __slots__ = ()

    name: ClassVar[str] = "offloaded"

    def apply(self, ledger: Ledger) -> Ledger:
        """Marks blocks as recomputed with their inputs on the host. Raises ModelError ST280 without blocks."""
        marked = FullRecompute().apply(ledger)
        groups = tuple(replace(group, inputs_on_host=group.recomputed) for group in marked.groups)
        return replace(marked, groups=groups, passes=(*ledger.passes, f"recompute:{self.name}"))

    def attach(self, model: "torch.nn.Module") -> None:
        """Switches it on. Raises ModelError ST280 for a model that has no blocks to recompute."""
        from stoker.techniques.recompute.host_inputs import hold_inputs_on_host
        from stoker.techniques.recompute.switch_on import enable_recompute

        enable_recompute(model)
        hold_inputs_on_host(model)
