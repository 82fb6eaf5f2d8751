"""GPT-NeoX: Pythia, Polyglot-Ko, StableLM alpha. LayerNorm, one fused projection, partial rotary embedding.

Source of shapes: modeling_gpt_neox.py of transformers.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.attention import Heads, attention_core, input_of, rotary
from stoker.catalogue.models.parts.decoder import decoder_shape, layer_groups
from stoker.catalogue.models.parts.mlp import plain_mlp
from stoker.catalogue.models.parts.norm import layer_norm
from stoker.catalogue.models.parts.part import dense, dropout, kernels


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a GPT-NeoX config."""
    hidden = config.size("hidden_size")
    num_heads = config.size("num_attention_heads")
    heads = Heads(
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=config.divides("hidden_size", "num_attention_heads"),
        dropout=config.frac("attention_dropout"),
    )
    bias = config.flag("attention_bias")
    drop = config.frac("hidden_dropout")
    # Side by side, both norms read the block's input: it is kept once
    parallel = config.flag("use_parallel_residual")
    second_norm = layer_norm("post_attention_layernorm", hidden, own_input=not parallel)
    block = (
        layer_norm("input_layernorm", hidden)
        + input_of(hidden, "query_key_value")
        + dense("query_key_value", hidden, 3 * hidden, bias=bias)
        + rotary()
        + attention_core(
            heads, qkv_elements=5 * hidden, copied_for="attention.dense"
        )  # value is a view of the fused projection
        + dense("attention.dense", hidden, hidden, bias=bias)
        + dropout("dropout", 2 * hidden, drop)
        + second_norm
        + plain_mlp(
            ("dense_h_to_4h", "dense_4h_to_h"), hidden, config.size("intermediate_size"), config.text("hidden_act")
        )
        + kernels(2)
    )
    return decoder_shape(
        config,
        target,
        layers=layer_groups(heads, [None] * config.layers(), lambda _window: block, hidden),
        final_norm=layer_norm("final_layer_norm", hidden),
        names=("embed_in", "final_layer_norm", "lm_head"),
        embedding_extra=dropout("emb_dropout", hidden, drop),
        dropout=drop,
    )


FAMILY = Family(
    name="gpt_neox",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "gpt_neox": {
            "vocab_size": 50432,
            "hidden_size": 6144,
            "intermediate_size": 24576,
            "num_hidden_layers": 44,
            "num_attention_heads": 64,
            "hidden_act": "gelu",
            "attention_dropout": 0.0,
            "hidden_dropout": 0.0,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": False,
            "use_parallel_residual": True,
            "attention_bias": True,
        }
    },
    build=build,
)
