"""OPT: learned positions, LayerNorm before (350M: after) each half, ReLU, biases everywhere.

Source of shapes: modeling_opt.py of transformers; positions have two rows more than the config says.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.attention import Heads, attention_core, input_of
from stoker.catalogue.models.parts.decoder import decoder_shape, layer_groups
from stoker.catalogue.models.parts.mlp import plain_mlp
from stoker.catalogue.models.parts.norm import layer_norm
from stoker.catalogue.models.parts.part import Part, dense, dropout, kernels, weights
from stoker.core.i18n import _

_EXTRA_POSITIONS = 2


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of an OPT config."""
    hidden = config.size("hidden_size")
    if (config.optional_size("word_embed_proj_dim") or hidden) != hidden:
        raise config.wrong("word_embed_proj_dim", _("only the width of hidden_size is supported"))
    if not config.flag("do_layer_norm_before"):
        raise config.wrong("do_layer_norm_before", _("only norms before each half are supported in this family"))
    num_heads = config.size("num_attention_heads")
    heads = Heads(
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=config.divides("hidden_size", "num_attention_heads"),
        dropout=config.frac("attention_dropout"),
    )
    drop = config.frac("dropout")
    block = (
        layer_norm("self_attn_layer_norm", hidden)
        + input_of(hidden, "q_proj", "k_proj", "v_proj")
        + dense("q_proj", hidden, hidden, bias=True)
        + dense("k_proj", hidden, hidden, bias=True)
        + dense("v_proj", hidden, hidden, bias=True)
        + attention_core(heads)
        + dense("out_proj", hidden, hidden, bias=True)
        + dropout("dropout", 2 * hidden, drop)
        + layer_norm("final_layer_norm", hidden)
        + plain_mlp(("fc1", "fc2"), hidden, config.size("ffn_dim"), config.text("hidden_act"))
        + kernels(3)
    )
    positions = config.size("max_position_embeddings") + _EXTRA_POSITIONS
    return decoder_shape(
        config,
        target,
        layers=layer_groups(heads, [None] * config.layers(), lambda _window: block, hidden),
        final_norm=layer_norm("final_layer_norm", hidden),
        embedding_extra=Part() + weights(positions * hidden) + kernels(4),
        dropout=drop,
    )


FAMILY = Family(
    name="opt",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "opt": {
            "vocab_size": 50272,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "ffn_dim": 3072,
            "max_position_embeddings": 2048,
            "do_layer_norm_before": True,
            "word_embed_proj_dim": None,
            "dropout": 0.1,
            "attention_dropout": 0.0,
            "num_attention_heads": 12,
            "activation_function": "relu",
            "tie_word_embeddings": True,
        }
    },
    build=build,
    renamed={"activation_function": "hidden_act"},
)
