"""Decoders that norm after each half: EXAONE 4 and OLMo 2 (no norm before), GLM-4 0414 (before and after); GLM-4 and
ChatGLM, the same block with norms only before.

Source of shapes: modeling_exaone4.py, modeling_olmo2.py, modeling_glm.py, modeling_glm4.py of transformers.
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
from stoker.catalogue.models.parts.mlp import fused_gated_mlp, gated_mlp
from stoker.catalogue.models.parts.norm import rms_norm
from stoker.catalogue.models.parts.part import Part, kernels


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of an EXAONE 4, OLMo 2 or GLM-4 config."""
    hidden = config.size("hidden_size")
    heads = grouped_heads(config, dropout=config.frac("attention_dropout"))
    block = _glm4_block(config) if config.model_type.startswith("glm") else _post_norm_block(config)
    layers = layer_groups(heads, _windows(config), lambda _window: block, hidden)
    return decoder_shape(config, target, layers=layers, final_norm=rms_norm("norm", hidden))


def _post_norm_block(config: ConfigReader) -> Part:
    hidden = config.size("hidden_size")
    heads = grouped_heads(config, dropout=config.frac("attention_dropout"))
    is_exaone = config.model_type == "exaone4"
    bias = config.flag("attention_bias")
    block = (
        separate_attention(heads, hidden, qkv_bias=bias, output_bias=bias, head_norm="llama" if is_exaone else None)
        + rms_norm("post_attention_layernorm", hidden, style="llama" if is_exaone else "gemma")
        + gated_mlp(hidden, config.size("intermediate_size"), config.text("hidden_act"))
        + rms_norm("post_feedforward_layernorm", hidden, style="llama" if is_exaone else "gemma")
        + kernels(2)
    )
    if not is_exaone:  # OLMo 2 norms the whole query and key
        block += rms_norm("q_norm", heads.query_width, style="gemma")
        block += rms_norm("k_norm", heads.kv_width, style="gemma")
    return block


def _glm4_block(config: ConfigReader) -> Part:
    hidden = config.size("hidden_size")
    heads = grouped_heads(config, dropout=config.frac("attention_dropout"))
    attention = separate_attention(heads, hidden, qkv_bias=config.flag("attention_bias"), partial_rotary=True)
    mlp = fused_gated_mlp(
        ("gate_up_proj", "down_proj"), hidden, config.size("intermediate_size"), config.text("hidden_act")
    )
    block = pre_norm_block(hidden, attention, mlp)
    if config.model_type == "glm4":
        block += rms_norm("post_self_attn_layernorm", hidden) + rms_norm("post_mlp_layernorm", hidden)
    return block


def _windows(config: ConfigReader) -> list[int | None]:
    window = config.optional_size("sliding_window", most=10**8) if config.model_type == "exaone4" else None
    if window is None:
        return [None] * config.layers()
    pattern = config.values.get("sliding_window_pattern")
    every = len(pattern) if isinstance(pattern, str) else config.optional_size("sliding_window_pattern")
    return layer_windows(config, window, every=every)


_GLM = {
    "vocab_size": 151552,
    "hidden_size": 4096,
    "intermediate_size": 13696,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "attention_bias": True,
    "attention_dropout": 0.0,
}

_COMMON = {
    "vocab_size": 102400,
    "hidden_size": 4096,
    "intermediate_size": 16384,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "attention_dropout": 0.0,
}

FAMILY = Family(
    name="exaone4",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "exaone4": {**_COMMON, "sliding_window": 4096, "sliding_window_pattern": 4, "layer_types": None},
        "olmo2": {
            **_COMMON,
            "vocab_size": 50304,
            "intermediate_size": 11008,
            "num_key_value_heads": None,
            "attention_bias": False,
        },
        "glm": _GLM,
        "glm4": _GLM,
    },
    build=build,
)
