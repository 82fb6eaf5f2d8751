"""GPT-J: attention and MLP side by side on one LayerNorm, partial rotary embedding, an untied head with a bias.

Source of shapes: modeling_gptj.py of transformers.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.attention import Heads, attention_core, input_of, rotary
from stoker.catalogue.models.parts.decoder import decoder_shape, layer_groups
from stoker.catalogue.models.parts.mlp import plain_mlp
from stoker.catalogue.models.parts.norm import layer_norm
from stoker.catalogue.models.parts.part import dense, dropout, kernels


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a GPT-J config."""
    hidden = config.size("hidden_size")
    num_heads = config.size("num_attention_heads")
    heads = Heads(
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=config.divides("hidden_size", "num_attention_heads"),
        dropout=config.frac("attn_pdrop"),
    )
    drop = config.frac("resid_pdrop")
    inner = config.optional_size("n_inner") or 4 * hidden
    block = (
        layer_norm("ln_1", hidden)
        + input_of(hidden, "q_proj", "k_proj", "v_proj")
        + dense("q_proj", hidden, hidden)
        + dense("k_proj", hidden, hidden)
        + dense("v_proj", hidden, hidden)
        + rotary()
        + attention_core(heads, copied_for="out_proj")
        + dense("out_proj", hidden, hidden)
        + plain_mlp(("fc_in", "fc_out"), hidden, inner, config.text("hidden_act"), own_input=False)
        + dropout("dropout", 2 * hidden, drop)
        + kernels(12)
    )
    return decoder_shape(
        config,
        target,
        layers=layer_groups(heads, [None] * config.layers(), lambda _window: block, hidden, name="h"),
        final_norm=layer_norm("ln_f", hidden),
        names=("wte", "ln_f", "lm_head"),
        embedding_extra=dropout("drop", hidden, config.frac("embd_pdrop")),
        head_bias=True,
        dropout=drop,
    )


FAMILY = Family(
    name="gptj",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "gptj": {
            "vocab_size": 50400,
            "n_positions": 2048,
            "n_embd": 4096,
            "n_layer": 28,
            "n_head": 16,
            "n_inner": None,
            "activation_function": "gelu_new",
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            "tie_word_embeddings": False,
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
