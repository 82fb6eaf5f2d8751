"""Phi 1 to 2 (one norm, attention and MLP side by side) and Phi 3, 3.5 and 4 (Llama-like, fused projections).

Source of shapes: modeling_phi.py and modeling_phi3.py of transformers.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.attention import attention_core, input_of, rotary
from stoker.catalogue.models.parts.decoder import (
    decoder_shape,
    grouped_heads,
    layer_groups,
    pre_norm_block,
    separate_attention,
)
from stoker.catalogue.models.parts.mlp import fused_gated_mlp, plain_mlp
from stoker.catalogue.models.parts.norm import layer_norm, rms_norm
from stoker.catalogue.models.parts.part import dense, dropout, kernels

_COMMON = {
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
}


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a Phi or Phi-3 config."""
    return _phi(config, target) if config.model_type == "phi" else _phi3(config, target)


def _phi(config: ConfigReader, target: Target) -> Shape:
    hidden = config.size("hidden_size")
    heads = grouped_heads(config, dropout=config.frac("attention_dropout"))
    drop = config.frac("resid_pdrop")
    block = (
        layer_norm("input_layernorm", hidden)
        + separate_attention(
            heads, hidden, qkv_bias=True, output_bias=True, output="self_attn.dense", partial_rotary=True
        )
        + plain_mlp(
            ("fc1", "fc2"), hidden, config.size("intermediate_size"), config.text("hidden_act"), own_input=False
        )
        + dropout("resid_dropout", 2 * hidden, drop)
        + kernels(2)
    )
    if config.flag("qk_layernorm"):
        block += layer_norm("q_layernorm", heads.head_dim) + layer_norm("k_layernorm", heads.head_dim)
    return decoder_shape(
        config,
        target,
        layers=layer_groups(heads, [None] * config.layers(), lambda _window: block, hidden),
        final_norm=layer_norm("final_layernorm", hidden),
        names=("embed_tokens", "final_layernorm", "lm_head"),
        head_bias=True,
        dropout=drop,
    )


def _phi3(config: ConfigReader, target: Target) -> Shape:
    hidden = config.size("hidden_size")
    heads = grouped_heads(config, dropout=config.frac("attention_dropout"))
    width = heads.query_width + 2 * heads.kv_width
    drop = config.frac("resid_pdrop")
    attention = (
        input_of(hidden, "qkv_proj")
        + dense("qkv_proj", hidden, width)
        + rotary()
        # rotated query and key are new; value stays a view that keeps the fused projection alive
        + attention_core(heads, qkv_elements=heads.query_width + heads.kv_width + width, copied_for="o_proj")
        + dense("o_proj", heads.query_width, hidden)
    )
    mlp = fused_gated_mlp(
        ("gate_up_proj", "down_proj"), hidden, config.size("intermediate_size"), config.text("hidden_act")
    )
    block = pre_norm_block(hidden, attention, mlp) + dropout("resid_dropout", 2 * hidden, drop)
    window = config.optional_size("sliding_window", most=10**8)
    return decoder_shape(
        config,
        target,
        layers=layer_groups(heads, [window] * config.layers(), lambda _window: block, hidden),
        final_norm=rms_norm("norm", hidden),
        dropout=drop,
    )


FAMILY = Family(
    name="phi",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "phi": {
            **_COMMON,
            "vocab_size": 51200,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 24,
            "hidden_act": "gelu_new",
            "max_position_embeddings": 2048,
            "qk_layernorm": False,
        },
        "phi3": {
            **_COMMON,
            "vocab_size": 32064,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 32,
            "hidden_act": "silu",
            "max_position_embeddings": 4096,
            "sliding_window": None,
        },
    },
    build=build,
)
