"""Tensor parallel (Megatron): matrices cut over `tp` ranks, by columns into a half of a block and by rows out of it.

Each half ends in a sum over the ranks: an all-reduce of the block's output in forward and of its input's gradient in
backward, or with sequence parallel a reduce-scatter and an all-gather, which move the same bytes. All of it is on the
critical path. Saved tensors inside a half are cut; with sequence parallel those between the halves too, so that
34 s b h becomes 34 / t, without it 10 + 24 / t (Korthikanti et al., 2205.05198, section 4).
"""

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, ClassVar, Final

from stoker.core.i18n import _
from stoker.core.ledger import Attention, Ledger, Linear, ModelArch, ModuleGroup, SavedTensor
from stoker.core.run_config import Parallel, RunConfig
from stoker.techniques.parallel.priced_only import refuse
from stoker.techniques.parallel.rank_share import with_params
from stoker.techniques.protocols import Collective

if TYPE_CHECKING:
    import torch

# Share of the traffic that sending in pieces hides: a step of 70 B on 256 H100 became 6 to 14 % shorter (torchtitan,
# asyncTP 2025-06), where the traffic is about a quarter of it.
_ASYNC_HIDES: Final = 0.4


class TensorParallel:
    """Over `tp` neighbouring ranks."""

    __slots__ = ()

    name: ClassVar[str] = "tensor"
    can_run: ClassVar[bool] = False

    def matches(self, parallel: Parallel) -> bool:
        return parallel.tp > 1

    def problem(self, arch: ModelArch, parallel: Parallel) -> str | None:
        """Heads and widths must divide; key-value heads may also be copied to several ranks."""
        shapes = [group.attention for group in arch.groups if group.attention is not None]
        if not shapes:
            return _("{name}: the model has no attention heads to divide").format(name=f"tp {parallel.tp}")
        for shape in shapes:
            if shape.num_heads % parallel.tp:
                return _("{name}: {heads} attention heads do not divide by it").format(
                    name=f"tp {parallel.tp}", heads=shape.num_heads
                )
            if shape.num_kv_heads % parallel.tp and parallel.tp % shape.num_kv_heads:
                return _("{name}: {heads} key-value heads do not divide by it").format(
                    name=f"tp {parallel.tp}", heads=shape.num_kv_heads
                )
        return None

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        """Matrices, heads and the vocabulary over `tp`; norms stay whole."""
        ranks, spread = parallel.tp, parallel.sequence_parallel
        cut = ledger.map_groups(lambda group: _cut(group, ranks, spread=spread), by=self.name)
        outputs = ledger.num_outputs
        is_vocabulary = outputs == ledger.arch.vocab_size
        return replace(
            cut,
            rank_outputs=ceil(outputs / ranks) if is_vocabulary else outputs,
            all_trainable=ledger.num_trainable,
        )

    def collectives(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[Collective, ...]:
        """Per micro-batch: every half once forward, once backward, once more where it is recomputed; and the ends."""
        rounds = 2 * config.gradient_accumulation_steps  # embedding and head: forward and backward
        for group in ledger.groups:
            halves = sum(is_row(group, linear) for linear in group.linears) if group.kind == "block" else 0
            passes = 1 + group.in_backward + (group.recomputed and group.products_again_frac == 1.0)
            rounds += halves * passes * group.repeats * config.gradient_accumulation_steps
        size = tokens * ledger.arch.hidden_size * ledger.compute_bytes
        if size <= 0:
            return ()
        whole = Collective(
            operation="all_reduce",
            num_bytes=size,
            ranks=config.parallel.tp,
            count=rounds,
            overlapped_frac=_ASYNC_HIDES if config.parallel.async_tp else 0.0,
            in_micro_batch=True,
        )
        if not config.parallel.sequence_parallel:
            return (whole,)
        return (replace(whole, operation="all_gather"), replace(whole, operation="reduce_scatter"))

    def buffer_bytes(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[float, float]:
        """The gathered input of a half and its output before the sum, whole."""
        return 2.0 * tokens * ledger.arch.hidden_size * ledger.compute_bytes, 0.0

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        refuse(f"tp {parallel.tp}")


def is_row(group: ModuleGroup, linear: Linear) -> bool:
    """Whether `linear` leads out of a half of the block, so that it is cut by rows and summed over the ranks.

    By its shape: it writes the block's width, and it is not one of several projections of one input (query, key,
    value), which may be as wide.
    """
    if linear.out_features != _width(group):
        return False
    return not any(linear.name in saved.linears and len(saved.linears) > 1 for saved in group.saved)


def _width(group: ModuleGroup) -> float:
    """The block's width: what its first matrix reads. `input_elements` is no measure, autocast and ranks change it."""
    return group.linears[0].in_features if group.linears else group.input_elements


def _cut(group: ModuleGroup, ranks: int, *, spread: bool) -> ModuleGroup:
    """One rank's part of `group`; `spread`: sequence parallel."""
    matrices = sum(linear.num_params for linear in group.linears)
    divided = group.num_params if group.kind == "embedding" else min(matrices, group.num_params)
    local = with_params(group, group.num_params - divided + ceil(divided / ranks), adapters=1.0 / ranks)
    rows = {linear.name for linear in group.linears if is_row(group, linear)}
    return replace(
        local,
        linears=tuple(_cut_linear(linear, ranks, by_rows=linear.name in rows) for linear in group.linears),
        attention=None if group.attention is None else _cut_heads(group.attention, ranks),
        saved=tuple(_cut_saved(saved, rows, ranks, spread=spread) for saved in group.saved),
        input_elements=group.input_elements / (ranks if spread else 1),
        kept_elements=group.kept_elements / ranks,
        extra_flops_per_token=group.extra_flops_per_token / ranks,
        adapter_flops_per_token=group.adapter_flops_per_token / ranks,
        matmul_cast_elements=group.matmul_cast_elements / ranks,
    )


def _cut_linear(linear: Linear, ranks: int, *, by_rows: bool) -> Linear:
    if by_rows:
        return replace(linear, in_features=ceil(linear.in_features / ranks))
    return replace(linear, out_features=ceil(linear.out_features / ranks))


def _cut_heads(shape: Attention, ranks: int) -> Attention:
    return replace(
        shape, num_heads=ceil(shape.num_heads / ranks), num_kv_heads=max(1, ceil(shape.num_kv_heads / ranks))
    )


def _cut_saved(saved: SavedTensor, rows: set[str], ranks: int, *, spread: bool) -> SavedTensor:
    """Inside a half: attention, activations and the inputs of what leads out; everything else lies between halves."""
    into_rows = bool(saved.linears) and set(saved.linears) <= rows
    inside = saved.role in ("attention", "activation_input", "scores") or saved.per_key or into_rows
    return replace(saved, elements=saved.elements / ranks) if inside or spread else saved
