"""Attention: projections, and what the score and value product keep, per token.

Kernels that never write the score matrix (flash, memory-efficient) keep query, key, value, output and one fp32
log-sum-exp a head; eager attention keeps the score matrix, one row of keys a token and head (role `scores`).
"""

from dataclasses import dataclass

from stoker.catalogue.models.parts.part import FP32_BYTES, MASK_BYTES, Part, keeps, keeps_input, kernels
from stoker.core.ledger import Attention, SavedRole


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Head counts and size. `softmax_fp32`: eager code computes the softmax in fp32 and casts back."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    dropout: float = 0.0
    softmax_fp32: bool = True

    @property
    def query_width(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.num_kv_heads * self.head_dim

    def shape(self, *, causal: bool, window: int | None = None) -> Attention:
        """The ledger's attention shape of a layer with this window (None: full)."""
        return Attention(
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            causal=causal,
            window=window,
        )


def attention_core(
    heads: Heads, *, qkv_elements: float | None = None, always_scores: bool = False, copied_for: str | None = None
) -> Part:
    """Query, key, value, output, log-sum-exp and scores.

    `qkv_elements`: elements of query, key and value as kept, where that is not one tensor of each (a fused
    projection keeps its whole storage alive). `always_scores`: the model knows no kernel without a score matrix.
    `copied_for`: the output projection, where query comes out of a concatenation (partial rotary embedding): the
    kernel's output then lies head by head and the projection keeps a reordered copy.
    """
    qkv = heads.query_width + 2 * heads.kv_width if qkv_elements is None else qkv_elements
    core = keeps("query_key_value", "attention", qkv) + keeps("attention_output", "attention", heads.query_width)
    if not always_scores:
        core += keeps("log_sum_exp", "attention", heads.num_heads, bytes_per_element=FP32_BYTES)
    if copied_for is not None:
        core += keeps_input(heads.query_width, copied_for)
    return core + scores(heads, role="other" if always_scores else "scores") + kernels(6 if always_scores else 1)


def scores(heads: Heads, *, role: SavedRole = "scores") -> Part:
    """What eager attention keeps per token and key: softmax output, its cast or its dropped-out copy, the mask."""
    softmax_bytes = FP32_BYTES if heads.softmax_fp32 else None
    count = float(heads.num_heads)
    part = keeps("softmax", role, count, bytes_per_element=softmax_bytes, per_key=True)
    if heads.dropout > 0.0:
        part += keeps("softmax.mask", role, count, bytes_per_element=MASK_BYTES, per_key=True)
        part += keeps("softmax.dropped", role, count, per_key=True)
    elif heads.softmax_fp32:
        part += keeps("softmax.cast", role, count, per_key=True, only_below_fp32=True)
    return part


def rotary() -> Part:
    """Rotary embedding of query and key: launches only; its factors carry no gradient, so it keeps nothing."""
    return kernels(10)


def input_of(width: int, *names: str) -> Part:
    """The block input as the projections keep it."""
    return keeps_input(width, *names)
