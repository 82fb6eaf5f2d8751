"""Qwen2, Qwen2.5 and Qwen3, dense. Qwen2 has biases on query, key and value; Qwen3 a norm over each head instead.

Source of shapes: modeling_qwen2.py and modeling_qwen3.py of transformers.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.decoder import (
    decoder_shape,
    grouped_heads,
    layer_groups,
    layer_windows,
    pre_norm_block,
    separate_attention,
)
from stoker.catalogue.models.parts.mlp import gated_mlp
from stoker.catalogue.models.parts.norm import rms_norm

_COMMON = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
    "attention_dropout": 0.0,
}


def windows_of(config: ConfigReader) -> list[int | None]:
    """Qwen's rule: with use_sliding_window, the layers from max_window_layers on slide."""
    window = config.optional_size("sliding_window", most=10**8) if config.flag("use_sliding_window") else None
    if window is None:
        return [None] * config.layers()
    if config.words("layer_types") is not None:
        return layer_windows(config, window)
    first = config.size("max_window_layers", least=0)
    return [window if index >= first else None for index in range(config.layers())]


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a Qwen2 or Qwen3 config."""
    hidden = config.size("hidden_size")
    heads = grouped_heads(config, dropout=config.frac("attention_dropout"))
    is_qwen3 = config.model_type == "qwen3"
    bias = config.flag("attention_bias") if is_qwen3 else True
    attention = separate_attention(
        heads, hidden, qkv_bias=bias, output_bias=bias and is_qwen3, head_norm="llama" if is_qwen3 else None
    )
    mlp = gated_mlp(hidden, config.size("intermediate_size"), config.text("hidden_act"))
    block = pre_norm_block(hidden, attention, mlp)
    layers = layer_groups(heads, windows_of(config), lambda _window: block, hidden)
    return decoder_shape(config, target, layers=layers, final_norm=rms_norm("norm", hidden))


FAMILY = Family(
    name="qwen",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={"qwen2": _COMMON, "qwen3": {**_COMMON, "head_dim": 128, "attention_bias": False}},
    build=build,
)
