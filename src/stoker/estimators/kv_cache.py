"""Bytes of inference: the KV cache by architecture, the weights by number format, and the longest context that fits.

A token's cache is what attention keeps of it: keys and values of the key-value heads (never of all heads), with the
head size that the config states, or the latent of multi-head latent attention. A layer with a sliding window needs no
more than its window, but only some engines free the rest, so both figures are given. Pinned by cases 51, 53 and 55.
"""

from dataclasses import dataclass
from math import floor
from typing import Final, Literal

from stoker.core.ledger import Attention, ModelArch, ModuleGroup

WeightForm = Literal["fp32", "bf16", "fp16", "fp8", "int8", "nf4", "nf4_double", "int4"]
CacheForm = Literal["fp32", "bf16", "fp16", "fp8", "int8"]
CACHE_BYTES: Final[dict[CacheForm, float]] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}
# Bytes a parameter of the blocks' matrices; everything else stays in 16 bits. nf4: an fp32 scale for every 64, or
# (doubly quantised) an 8-bit one and an fp32 for every 256 of those (QLoRA, 2305.14314, section 3). int4: as GPTQ and
# AWQ store it, an fp16 scale and a 4-bit zero for every 128. int8: an fp32 scale a row, which is nothing.
_MATRIX_BYTES: Final[dict[WeightForm, float]] = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "nf4": 0.5 + 4.0 / 64,
    "nf4_double": 0.5 + 1.0 / 64 + 4.0 / (64 * 256),
    "int4": 0.5 + 2.0 / 128 + 0.5 / 128,
}
WEIGHT_FORMS: Final[tuple[WeightForm, ...]] = tuple(_MATRIX_BYTES)
BLOCK_TOKENS: Final = 16  # tokens of a page, as paged engines allocate the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayers:
    """Layers that keep the same for a token: how many, cached elements a token and layer, and their window."""

    count: int
    elements: float
    window: int | None

    def kept_tokens(self, context: float, *, windowed: bool) -> float:
        """Tokens that a layer keeps of a sequence of `context`; `windowed`: the engine frees what left the window."""
        return min(context, float(self.window)) if windowed and self.window else context


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Whether `sequences` caches of `context` tokens fit beside the weights.

    `budget_bytes`: what is left for the cache. `needed_bytes`: the cache. `largest_context`: most tokens that each of
    the sequences can have; None where any number fits. `pages`: whole pages of the budget, `paged_tokens` in them:
    the same limit of an engine that allocates `BLOCK_TOKENS` at a time (all sequences together; None with windows,
    whose pages come and go).
    """

    windowed: bool
    context: int
    sequences: int
    budget_bytes: float
    needed_bytes: float
    largest_context: int | None
    pages: int | None
    paged_tokens: int | None

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.budget_bytes


def cache_elements(attention: Attention) -> float:
    """Elements that one layer keeps of one token: keys and values of its key-value heads, or its latent."""
    if attention.kv_cache_elements is not None:
        return float(attention.kv_cache_elements)
    return attention.num_kv_heads * (attention.head_dim + (attention.value_head_dim or attention.head_dim))


def cache_layers(arch: ModelArch) -> tuple[CacheLayers, ...]:
    """The decoder layers of `arch`, by what they keep; none for an encoder or an image model, which has no cache."""
    found: dict[tuple[float, int | None], int] = {}
    for group in arch.groups:
        if group.attention is not None and group.attention.causal:
            key = cache_elements(group.attention), group.attention.window
            found[key] = found.get(key, 0) + group.repeats
    return tuple(CacheLayers(count=count, elements=key[0], window=key[1]) for key, count in found.items())


def cache_bytes_per_token(arch: ModelArch, element_bytes: float = 2.0) -> float:
    """Bytes that one more token takes while no window is full."""
    return sum(layer.count * layer.elements for layer in cache_layers(arch)) * element_bytes


def cache_bytes(
    arch: ModelArch, context: float, *, sequences: int = 1, element_bytes: float = 2.0, windowed: bool = True
) -> float:
    """Bytes of `sequences` caches of `context` tokens. `windowed`: the engine frees what left a sliding window."""
    layers = cache_layers(arch)
    return (
        sequences
        * element_bytes
        * sum(x.count * x.elements * x.kept_tokens(context, windowed=windowed) for x in layers)
    )


def largest_context(
    arch: ModelArch, budget_bytes: float, *, sequences: int = 1, element_bytes: float = 2.0, windowed: bool = True
) -> int | None:
    """Most tokens whose cache fits into `budget_bytes`; None where no number is too many (windows only, no cache)."""

    def size(context: float) -> float:
        return cache_bytes(arch, context, sequences=sequences, element_bytes=element_bytes, windowed=windowed)

    if budget_bytes <= 0.0:
        return 0
    low, high = 0, 1
    while size(high) <= budget_bytes:
        low, high = high, 2 * high
        if high > 1 << 40:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle) <= budget_bytes else (low, middle)
    return low


def serve(
    arch: ModelArch,
    context: int,
    *,
    budget_bytes: float,
    sequences: int = 1,
    element_bytes: float = 2.0,
    windowed: bool = True,
) -> Serving:
    """Whether the caches fit into `budget_bytes` (visible bytes x share - weights - overhead), and what would."""
    needed = cache_bytes(arch, context, sequences=sequences, element_bytes=element_bytes, windowed=windowed)
    most = largest_context(arch, budget_bytes, sequences=sequences, element_bytes=element_bytes, windowed=windowed)
    slides = windowed and any(layer.window for layer in cache_layers(arch))
    paged = None if slides else pages_of(budget_bytes, cache_bytes_per_token(arch, element_bytes))
    return Serving(
        windowed=windowed,
        context=context,
        sequences=sequences,
        budget_bytes=budget_bytes,
        needed_bytes=needed,
        largest_context=most,
        pages=paged[0] if paged else None,
        paged_tokens=paged[1] if paged else None,
    )


def pages_of(budget_bytes: float, bytes_per_token: float, block_tokens: int = BLOCK_TOKENS) -> tuple[int, int]:
    """(pages, tokens) that fit into `budget_bytes` where the cache is allocated in whole pages."""
    pages = floor(budget_bytes / (bytes_per_token * block_tokens)) if bytes_per_token > 0 and budget_bytes > 0 else 0
    return pages, pages * block_tokens


def weight_bytes(arch: ModelArch, form: WeightForm) -> float:
    """Bytes of the weights in `form`: the blocks' matrices (experts too), and all else in 16 bits (fp32: in 32)."""
    rest = 4.0 if form == "fp32" else 2.0
    return sum(group.repeats * _group_bytes(group, _MATRIX_BYTES[form], rest) for group in arch.groups)


def _group_bytes(group: ModuleGroup, matrix: float, rest: float) -> float:
    quantised = sum(linear.num_params for linear in group.linears) if group.kind == "block" else 0
    return quantised * matrix + (group.num_params - quantised) * rest


def unquantised_part(arch: ModelArch, form: WeightForm, held_bytes: float) -> Literal["experts", "weights"] | None:
    """What of weights declared as `form` is stored in 16 bits after all, by the bytes they take; None where they agree.

    Case 6: 80e9 parameters "in 4 bits" that take 153 GiB have 2.05 bytes each; in 4 bits they would take 42 to 45 GB.
    """
    if held_bytes <= 1.25 * weight_bytes(arch, form):
        return None
    experts = sum(g.repeats * linear.num_params for g in arch.groups for linear in g.linears if linear.count > 1)
    wide = weight_bytes(arch, form) + experts * (2.0 - _MATRIX_BYTES[form])
    return "experts" if experts and held_bytes >= 0.9 * wide else "weights"
