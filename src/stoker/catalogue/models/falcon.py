"""Falcon 7B, 40B and 180B: attention and MLP side by side, few or one key-value head, a fused projection.

Source of shapes: modeling_falcon.py of transformers.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.attention import Heads, attention_core, input_of, rotary
from stoker.catalogue.models.parts.decoder import decoder_shape, layer_groups
from stoker.catalogue.models.parts.mlp import plain_mlp
from stoker.catalogue.models.parts.norm import layer_norm
from stoker.catalogue.models.parts.part import Part, dense, dropout, kernels


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a Falcon config."""
    hidden = config.size("hidden_size")
    heads = _heads(config)
    bias = config.flag("bias")
    drop = config.frac("hidden_dropout")
    width = heads.query_width + 2 * heads.kv_width
    new = config.flag("new_decoder_architecture")
    one_kv_head = heads.num_kv_heads == 1 and not new  # no fused kernel takes it: scores are written
    kept = 3 * hidden if new or one_kv_head else width  # key and value repeated for each head
    block = (
        _norms(config, hidden)
        + input_of(hidden, "query_key_value")
        + dense("query_key_value", hidden, width, bias=bias)
        + rotary()
        + attention_core(heads, qkv_elements=kept, always_scores=one_kv_head)
        + dense("self_attention.dense", hidden, hidden, bias=bias)
        + plain_mlp(
            ("dense_h_to_4h", "dense_4h_to_h"),
            hidden,
            config.optional_size("ffn_hidden_size") or 4 * hidden,
            config.text("hidden_act"),
            bias=bias,
        )
        + dropout("dropout", hidden, drop)
        + kernels(2)
    )
    layers = layer_groups(heads, [None] * config.layers(), lambda _window: block, hidden, name="h")
    return decoder_shape(
        config,
        target,
        layers=layers,
        final_norm=layer_norm("ln_f", hidden),
        names=("word_embeddings", "ln_f", "lm_head"),
        dropout=drop,
    )


def _heads(config: ConfigReader) -> Heads:
    num_heads = config.size("num_attention_heads")
    if config.flag("new_decoder_architecture"):
        num_kv = config.optional_size("num_kv_heads") or num_heads
    else:
        num_kv = 1 if config.flag("multi_query") else num_heads
    return Heads(
        num_heads=num_heads,
        num_kv_heads=num_kv,
        head_dim=config.divides("hidden_size", "num_attention_heads"),
        dropout=config.frac("attention_dropout"),
        softmax_fp32=False,
    )


def _norms(config: ConfigReader, hidden: int) -> Part:
    """Two norms side by side in the newer architecture, two in turn without parallel attention, else one."""
    both = config.optional_size("num_ln_in_parallel_attn")
    if both is None and config.flag("new_decoder_architecture"):
        both = 2
    if not config.flag("parallel_attn"):
        return layer_norm("input_layernorm", hidden) + layer_norm("post_attention_layernorm", hidden)
    if both == 2:
        return layer_norm("ln_attn", hidden) + layer_norm("ln_mlp", hidden)
    return layer_norm("input_layernorm", hidden)


FAMILY = Family(
    name="falcon",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "falcon": {
            "vocab_size": 65024,
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "num_kv_heads": None,
            "num_ln_in_parallel_attn": None,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
            "new_decoder_architecture": False,
            "multi_query": True,
            "parallel_attn": True,
            "bias": False,
            "max_position_embeddings": 2048,
            "ffn_hidden_size": None,
            "activation": "gelu",
            "tie_word_embeddings": True,
        }
    },
    build=build,
    renamed={"activation": "hidden_act"},
)
