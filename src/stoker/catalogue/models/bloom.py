"""BLOOM: position by attention bias (ALiBi), which always writes its score matrix; a norm after the embedding.

Source of shapes: modeling_bloom.py of transformers.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.attention import Heads, attention_core, input_of
from stoker.catalogue.models.parts.decoder import decoder_shape, layer_groups, pre_layer_norm_block
from stoker.catalogue.models.parts.mlp import plain_mlp
from stoker.catalogue.models.parts.norm import layer_norm
from stoker.catalogue.models.parts.part import dense, dropout


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a BLOOM config."""
    hidden = config.size("hidden_size")
    num_heads = config.size("num_attention_heads")
    heads = Heads(
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=config.divides("hidden_size", "num_attention_heads"),
        dropout=config.frac("attention_dropout"),
    )
    attention = (
        input_of(hidden, "query_key_value")
        + dense("query_key_value", hidden, 3 * hidden, bias=True)
        + attention_core(heads, always_scores=True)
        + dense("self_attention.dense", hidden, hidden, bias=True)
    )
    mlp = plain_mlp(("dense_h_to_4h", "dense_4h_to_h"), hidden, 4 * hidden, "gelu")
    drop = config.frac("hidden_dropout")
    names = ("input_layernorm", "post_attention_layernorm")
    block = pre_layer_norm_block(hidden, attention, mlp, names) + dropout("dropout", 2 * hidden, drop)
    return decoder_shape(
        config,
        target,
        layers=layer_groups(heads, [None] * config.layers(), lambda _window: block, hidden, name="h"),
        final_norm=layer_norm("ln_f", hidden),
        names=("word_embeddings", "ln_f", "lm_head"),
        embedding_extra=layer_norm("word_embeddings_layernorm", hidden),
        dropout=drop,
    )


FAMILY = Family(
    name="bloom",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "bloom": {
            "vocab_size": 250880,
            "hidden_size": 64,
            "n_layer": 2,
            "n_head": 8,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
            "tie_word_embeddings": True,
        }
    },
    build=build,
    renamed={"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_embed": "hidden_size"},
)
