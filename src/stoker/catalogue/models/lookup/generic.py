"""A decoder for a row that states only a size: `7B GPT-like`, `6.8B`.

Depth and width follow the published GPT-3 and Llama tables (2005.14165, table 2.1; 2302.13971, table 2), where the
width is near 128 times the depth: params = 12 x L x h^2 + V x h, so h = 128 L gives L = (params / 196,608)^(1/3).
"""

import math
import re
from typing import Any, Final

from stoker.catalogue.models.lookup.names import stated_params, words_of

_WORDS: Final = frozenset(
    (
        *("gpt", "like", "llama", "dense", "transformer", "decoder", "param", "params", "parameter", "parameters"),
        *("lm", "llm", "model", "language", "only", "custom", "style", "a", "billion", "million"),
    )
)
_SIZE: Final = re.compile(r"^\d+(\.\d+)?[bm]?$")
_ASPECT, _HEAD, _VOCAB = 128, 128, 50304


def is_generic_name(name: str) -> bool:
    """Whether `name` says a size and nothing that would tell one model from another."""
    words = words_of(name)
    sizes = [word for word in words if _SIZE.match(word)]
    others = [word for word in words if word not in sizes]
    return stated_params(name) is not None and len(sizes) == 1 and all(word in _WORDS for word in others)


def generic_config(num_params: float, name: str) -> dict[str, Any]:
    """A config of about `num_params`: Llama's block where `name` says so, else GPT-2's."""
    layers = max(2, round((num_params / (12 * _ASPECT**2)) ** (1 / 3)))
    gated = "llama" in words_of(name)
    tables = 2 if gated else 1
    width = _width(num_params, layers, tables)
    heads = width // _HEAD
    if gated:
        return {
            "model_type": "llama", "vocab_size": _VOCAB, "hidden_size": width, "num_hidden_layers": layers,
            "num_attention_heads": heads, "intermediate_size": round(8 * width / 3 / 256) * 256,
        }  # fmt: skip
    return {
        "model_type": "gpt2", "vocab_size": _VOCAB, "n_embd": width, "n_layer": layers, "n_head": heads,
        "n_positions": 2048, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        "activation_function": "gelu_pytorch_tanh",
    }  # fmt: skip


def _width(num_params: float, layers: int, tables: int) -> int:
    """The root of 12 L h^2 + tables V h = params, to a whole number of heads."""
    linear, square = tables * _VOCAB, 12 * layers
    root = (-linear + math.sqrt(linear**2 + 4 * square * num_params)) / (2 * square)
    return max(1, round(root / _HEAD)) * _HEAD
