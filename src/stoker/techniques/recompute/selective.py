"""Selective recomputation: attention and every second matrix product keep their output, the rest runs again.

The policy of torchtitan's per-operator selective checkpointing (2410.06511, section 2): products are dear to repeat
and small to keep, norms and activations the reverse, and half of the products is a fair middle. Scores of eager
attention (5as/h of 2205.05198) go as well. Kept per token: the block's input, attention's output, and the outputs of
products number 1, 3, 5, ... in the order in which the block runs them, an adapter's two factors each counted as one.
Expert stacks (one grouped product) run again.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from stoker.core.ledger import Ledger, ModuleGroup
from stoker.techniques.recompute.full import FullRecompute

if TYPE_CHECKING:
    import torch


class SelectiveRecompute:
    """torch's selective activation checkpointing in every block."""

    __slots__ = ()

    name: ClassVar[str] = "selective"

    def apply(self, ledger: Ledger) -> Ledger:
        """Marks blocks as under full recomputation, with what they keep beside their input.

        Raises ModelError ST280 for a model without blocks, as `attach` does.
        """
        marked = FullRecompute().apply(ledger)
        groups = tuple(_keeping(group, ledger) if group.recomputed else group for group in marked.groups)
        return replace(marked, groups=groups, passes=(*ledger.passes, f"recompute:{self.name}"))

    def attach(self, model: "torch.nn.Module") -> None:
        """Switches it on. Raises ModelError ST280 for a model that has no blocks to recompute."""
        from stoker.techniques.recompute.kept_outputs import leave_weight_norms_out, selective_contexts
        from stoker.techniques.recompute.switch_on import enable_recompute

        enable_recompute(model, context_fn=selective_contexts)
        leave_weight_norms_out(model)


def _keeping(group: ModuleGroup, ledger: Ledger) -> ModuleGroup:
    products = list(_products(group, ledger))
    kept = [size for number, (size, _flops) in enumerate(products) if number % 2 == 0]
    again = [flops for number, (_size, flops) in enumerate(products) if number % 2]
    experts = sum(lin.flops_per_token for lin in group.linears if lin.count > 1)
    whole = group.flops_per_token + group.adapter_flops_per_token
    is_eager = any(tensor.role == "scores" for tensor in group.saved)
    fused = 0.0 if is_eager else sum(_elements(group, name, ledger) for name in ("attention_output", "log_sum_exp"))
    share = (sum(again) + experts + group.extra_flops_per_token) / whole if whole else 1.0
    return replace(
        group,
        kept_elements=sum(kept) + fused,
        products_again_frac=min(share, 1.0),
        attention_again=is_eager,
    )


def _products(group: ModuleGroup, ledger: Ledger) -> Iterator[tuple[float, float]]:
    """(output elements of the compute format, FLOP) per token of each product, in order."""
    wide = 1.0 if ledger.autocast else group.adapter_bytes_per_param / ledger.compute_bytes
    adapters = {(rows, columns) for rows, columns in (s for s in group.adapter_shapes if len(s) == 2)}
    rank = min((min(shape) for shape in adapters), default=0)
    for lin in group.linears:
        if lin.count > 1:
            continue
        yield float(lin.out_features), lin.flops_per_token
        if lin.name in group.adapted:
            yield rank * wide, 2.0 * rank * lin.in_features
            yield lin.out_features * wide, 2.0 * rank * lin.out_features


def _elements(group: ModuleGroup, name: str, ledger: Ledger) -> float:
    return sum(
        tensor.bytes_per_token(ledger.compute_bytes, 1.0) / ledger.compute_bytes
        for tensor in group.saved
        if tensor.name == name
    )
