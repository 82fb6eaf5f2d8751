"""StableLM 2 and StableLM 3B-4E1T: Llama's projections with LayerNorm.

Source of shapes: modeling_stablelm.py of transformers.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.decoder import decoder_shape, grouped_heads, layer_groups, separate_attention
from stoker.catalogue.models.parts.mlp import gated_mlp
from stoker.catalogue.models.parts.norm import layer_norm
from stoker.catalogue.models.parts.part import dropout, kernels
from stoker.core.i18n import _


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a StableLM config."""
    hidden = config.size("hidden_size")
    if config.flag("qk_layernorm"):
        raise config.wrong("qk_layernorm", _("norms on query and key are not supported in this family"))
    heads = grouped_heads(config, dropout=config.frac("attention_dropout"))
    drop = config.frac("hidden_dropout")
    block = (
        layer_norm("input_layernorm", hidden)
        + separate_attention(heads, hidden, qkv_bias=config.flag("use_qkv_bias"), partial_rotary=True)
        + gated_mlp(hidden, config.size("intermediate_size"), config.text("hidden_act"))
        + dropout("dropout", hidden, drop)
        + kernels(2)
    )
    if not config.flag("use_parallel_residual"):
        block += layer_norm("post_attention_layernorm", hidden)
    layers = layer_groups(heads, [None] * config.layers(), lambda _window: block, hidden)
    return decoder_shape(config, target, layers=layers, final_norm=layer_norm("norm", hidden), dropout=drop)


FAMILY = Family(
    name="stablelm",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "stablelm": {
            "vocab_size": 50304,
            "hidden_size": 2560,
            "intermediate_size": 6912,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "hidden_act": "silu",
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
            "use_qkv_bias": False,
            "qk_layernorm": False,
            "use_parallel_residual": False,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
        }
    },
    build=build,
)
