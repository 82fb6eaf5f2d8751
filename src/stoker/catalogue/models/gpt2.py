"""GPT-2 (and KoGPT2): learned positions, LayerNorm, one fused projection for query, key and value.

Source of shapes: modeling_gpt2.py of transformers; its Conv1D is a linear layer stored transposed.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.attention import Heads, attention_core, input_of
from stoker.catalogue.models.parts.decoder import decoder_shape, layer_groups
from stoker.catalogue.models.parts.mlp import plain_mlp
from stoker.catalogue.models.parts.norm import layer_norm
from stoker.catalogue.models.parts.part import dense, dropout, kernels, weights


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a GPT-2 config."""
    hidden = config.size("hidden_size")
    head_dim = config.divides("hidden_size", "num_attention_heads")
    num_heads = config.size("num_attention_heads")
    heads = Heads(
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=head_dim,
        dropout=config.frac("attn_pdrop"),
        softmax_fp32=False,
    )
    inner = config.optional_size("n_inner") or 4 * hidden
    drop = config.frac("resid_pdrop")
    block = (
        layer_norm("ln_1", hidden)
        + input_of(hidden, "c_attn")
        + dense("c_attn", hidden, 3 * hidden, bias=True)
        + attention_core(heads)
        + dense("attn.c_proj", hidden, hidden, bias=True)
        + dropout("attn.resid_dropout", hidden, drop)
        + layer_norm("ln_2", hidden)
        + plain_mlp(("c_fc", "mlp.c_proj"), hidden, inner, config.text("hidden_act"))
        + dropout("mlp.dropout", hidden, drop)
        + kernels(2)
    )
    positions = config.size("max_position_embeddings")
    embed_drop = config.frac("embd_pdrop")
    return decoder_shape(
        config,
        target,
        layers=layer_groups(heads, [None] * config.layers(), lambda _window: block, hidden, name="h"),
        final_norm=layer_norm("ln_f", hidden),
        names=("wte", "ln_f", "lm_head"),
        embedding_extra=weights(positions * hidden) + dropout("drop", hidden, embed_drop) + kernels(2),
        dropout=drop,
    )


FAMILY = Family(
    name="gpt2",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "gpt2": {
            "vocab_size": 50257,
            "n_positions": 1024,
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_inner": None,
            "activation_function": "gelu_new",
            "resid_pdrop": 0.1,
            "embd_pdrop": 0.1,
            "attn_pdrop": 0.1,
            "tie_word_embeddings": True,
        }
    },
    build=build,
    renamed={
        "n_positions": "max_position_embeddings",
        "n_embd": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "activation_function": "hidden_act",
    },
)
