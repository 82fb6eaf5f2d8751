"""Gemma 1, 2 and 3 (text). RMSNorm weights apply in fp32; Gemma 2 and 3 add norms after each half, window layers.

Source of shapes: modeling_gemma.py, modeling_gemma2.py, modeling_gemma3.py of transformers.
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
    soft_cap,
)
from stoker.catalogue.models.parts.mlp import gated_mlp
from stoker.catalogue.models.parts.norm import rms_norm
from stoker.catalogue.models.parts.part import Part, keeps

_GEMMA2 = {
    "vocab_size": 256000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "sliding_window": 4096,
    "layer_types": None,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a Gemma config."""
    hidden = config.size("hidden_size")
    heads = grouped_heads(config, dropout=config.frac("attention_dropout"))
    bias = config.flag("attention_bias")
    generation = config.model_type
    attention = separate_attention(
        heads, hidden, qkv_bias=bias, output_bias=bias, head_norm="gemma" if generation == "gemma3_text" else None
    )
    if config.values.get("attn_logit_softcapping") is not None:
        attention += keeps("scores.soft_cap", "scores", heads.num_heads, per_key=True)
    mlp = gated_mlp(hidden, config.size("intermediate_size"), config.text("hidden_act"))
    block = pre_norm_block(hidden, attention, mlp, style="gemma")
    if generation != "gemma":  # post-norms of both halves
        block += rms_norm("pre_feedforward_layernorm", hidden, style="gemma")
        block += rms_norm("post_feedforward_layernorm", hidden, style="gemma")
    layers = layer_groups(heads, _windows(config), lambda _window: block, hidden)
    capped = config.values.get("final_logit_softcapping") is not None
    return decoder_shape(
        config,
        target,
        layers=layers,
        final_norm=rms_norm("norm", hidden, style="gemma"),
        logits_extra=soft_cap(config.size("vocab_size")) if capped else Part(),
    )


def _windows(config: ConfigReader) -> list[int | None]:
    if config.model_type == "gemma":
        return [None] * config.layers()
    window = config.optional_size("sliding_window", most=10**8)
    every = 2 if config.model_type == "gemma2" else config.optional_size("sliding_window_pattern") or 6
    return layer_windows(config, window, every=every)


FAMILY = Family(
    name="gemma",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "gemma": {
            "vocab_size": 256000,
            "hidden_size": 3072,
            "intermediate_size": 24576,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "head_dim": 256,
            "hidden_act": "gelu_pytorch_tanh",
            "max_position_embeddings": 8192,
            "tie_word_embeddings": True,
            "attention_bias": False,
            "attention_dropout": 0.0,
        },
        "gemma2": _GEMMA2,
        "gemma3_text": {
            **_GEMMA2,
            "vocab_size": 262208,
            "max_position_embeddings": 131072,
            "final_logit_softcapping": None,
            "attn_logit_softcapping": None,
        },
    },
    build=build,
    renamed={"hidden_activation": "hidden_act"},
)
