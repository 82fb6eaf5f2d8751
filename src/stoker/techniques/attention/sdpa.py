"""torch's scaled_dot_product_attention: fused kernels that recompute scores in backward, on every device."""

from dataclasses import replace
from typing import ClassVar

from stoker.core.hardware import Device
from stoker.core.ledger import Ledger, ModuleGroup


class Sdpa:
    """Keeps query, key, value, output and one log-sum-exp per row; never the score matrix."""

    __slots__ = ()

    name: ClassVar[str] = "sdpa"
    hf_name: ClassVar[str] = "sdpa"

    def apply(self, ledger: Ledger) -> Ledger:
        """Drops every tensor that grows with tokens times keys."""
        return ledger.map_groups(without_scores, by=self.name)

    def unsupported(self, device: Device) -> str | None:
        """Always None: without a fused kernel torch falls back to one that exists."""
        return None


def without_scores(group: ModuleGroup) -> ModuleGroup:
    """`group` without the tensors that only eager attention keeps (one element per token, key and head)."""
    return replace(group, saved=tuple(tensor for tensor in group.saved if tensor.role != "scores"))
