"""Nemotron 3 8B, Nemotron-4 and Minitron: LayerNorm with 1 + weight, squared ReLU without a gate, grouped heads.

Source of shapes: modeling_nemotron.py of transformers.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.decoder import decoder_shape, grouped_heads, layer_groups, separate_attention
from stoker.catalogue.models.parts.mlp import plain_mlp
from stoker.catalogue.models.parts.norm import layer_norm
from stoker.catalogue.models.parts.part import kernels


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a Nemotron config."""
    hidden = config.size("hidden_size")
    heads = grouped_heads(config, dropout=config.frac("attention_dropout"))
    bias = config.flag("attention_bias")
    block = (
        layer_norm("input_layernorm", hidden)
        + separate_attention(heads, hidden, qkv_bias=bias, output_bias=bias, partial_rotary=True)
        + layer_norm("post_attention_layernorm", hidden)
        + plain_mlp(
            ("up_proj", "down_proj"),
            hidden,
            config.size("intermediate_size"),
            config.text("hidden_act"),
            bias=config.flag("mlp_bias"),
        )
        + kernels(4)  # both residual additions and 1 + weight of both norms
    )
    layers = layer_groups(heads, [None] * config.layers(), lambda _window: block, hidden)
    return decoder_shape(config, target, layers=layers, final_norm=layer_norm("norm", hidden))


FAMILY = Family(
    name="nemotron",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "nemotron": {
            "vocab_size": 256000,
            "hidden_size": 6144,
            "intermediate_size": 24576,
            "num_hidden_layers": 32,
            "num_attention_heads": 48,
            "head_dim": None,
            "num_key_value_heads": None,
            "hidden_act": "relu2",
            "max_position_embeddings": 4096,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "mlp_bias": False,
        }
    },
    build=build,
)
