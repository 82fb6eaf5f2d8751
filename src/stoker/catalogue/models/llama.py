"""Llama and what shares its block: Mistral, SmolLM2, SmolLM3, Yi, TinyLlama, SOLAR, Kanana, EXAONE 3, Granite.

Source of shapes: modeling_llama.py of transformers; EXAONE 3 configs name keys as in their own repository.
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
from stoker.catalogue.models.parts.part import Part, kernels

_COMMON = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "mlp_bias": False,
}


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a Llama-like config."""
    hidden = config.size("hidden_size")
    heads = grouped_heads(config, dropout=config.frac("attention_dropout"))
    window = config.optional_size("sliding_window", most=10**8)
    bias, mlp_bias = config.flag("attention_bias"), config.flag("mlp_bias")
    mlp = gated_mlp(hidden, config.size("intermediate_size"), config.text("hidden_act"), bias=mlp_bias)
    post_norms = config.flag("use_post_norm")  # HyperCLOVA X: one more norm after each half

    def block(_window: int | None) -> Part:
        attention = separate_attention(heads, hidden, qkv_bias=bias, output_bias=bias)
        part = pre_norm_block(hidden, attention, mlp)
        if post_norms:
            part += rms_norm("post_norm1", hidden) + rms_norm("post_norm2", hidden)
        return part + (kernels(2) if "residual_multiplier" in config.values else Part())

    windows = layer_windows(config, window) if window else [None] * config.layers()
    layers = layer_groups(heads, windows, block, hidden)
    return decoder_shape(config, target, layers=layers, final_norm=rms_norm("norm", hidden))


FAMILY = Family(
    name="llama",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "llama": {**_COMMON, "head_dim": None},
        "mistral": {
            **{key: value for key, value in _COMMON.items() if key not in ("attention_bias", "mlp_bias")},
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "head_dim": None,
            "sliding_window": 4096,
        },
        "smollm3": {
            **_COMMON,
            "vocab_size": 128256,
            "hidden_size": 2048,
            "num_hidden_layers": 36,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "max_position_embeddings": 32768,
            "tie_word_embeddings": True,
        },
    },
    build=build,
)
