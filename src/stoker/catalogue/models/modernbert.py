"""ModernBERT: pre-norm encoder with rotary positions, GeGLU, and full attention in every third layer only.

Source of shapes: modeling_modernbert.py of transformers. The first layer has no norm before its attention.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.attention import Heads, attention_core, input_of, rotary
from stoker.catalogue.models.parts.decoder import layer_groups, layer_windows
from stoker.catalogue.models.parts.head import embedding
from stoker.catalogue.models.parts.mlp import fused_gated_mlp
from stoker.catalogue.models.parts.norm import layer_norm
from stoker.catalogue.models.parts.part import Part, dense, dropout, group, keeps, kernels
from stoker.core.ledger import ModuleGroup


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a ModernBERT config."""
    hidden = config.size("hidden_size")
    norm_bias = config.flag("norm_bias")
    drop = config.frac("embedding_dropout")
    heads = Heads(
        num_heads=config.size("num_attention_heads"),
        num_kv_heads=config.size("num_attention_heads"),
        head_dim=config.divides("hidden_size", "num_attention_heads"),
        dropout=config.frac("attention_dropout"),
    )
    windows = _windows(config)
    first_norm = layer_norm("attn_norm", hidden, bias=norm_bias)
    block = _block(config, heads)
    groups = (
        embedding(
            "embeddings",
            config.size("vocab_size"),
            hidden,
            extra=layer_norm("embeddings.norm", hidden, bias=norm_bias) + dropout("embeddings.drop", hidden, drop),
        ),
        *layer_groups(heads, windows[:1], lambda _w: block, hidden, name="layers.first", causal=False),
        *layer_groups(heads, windows[1:], lambda _w: first_norm + block, hidden, causal=False),
        group("final_norm", "norm", layer_norm("final_norm", hidden, bias=norm_bias), input_elements=hidden),
        *_head(config, target, norm_bias),
    )
    return Shape(
        groups=groups,
        hidden_size=hidden,
        num_hidden_layers=config.layers(),
        num_outputs=target.num_labels,
        vocab_size=config.size("vocab_size"),
        max_position_embeddings=config.size("max_position_embeddings"),
        dropout=config.frac("mlp_dropout"),
    )


def _windows(config: ConfigReader) -> list[int | None]:
    """local_attention tokens around each token, except in every global_attn_every_n_layers-th layer from the first."""
    window = config.size("local_attention")
    if config.words("layer_types") is not None:
        return layer_windows(config, window)
    every = config.optional_size("global_attn_every_n_layers") or 3
    return [window if index % every else None for index in range(config.layers())]


def _block(config: ConfigReader, heads: Heads) -> Part:
    hidden, inner = config.size("hidden_size"), config.size("intermediate_size")
    bias = config.flag("attention_bias")
    return (
        input_of(hidden, "Wqkv")
        + dense("Wqkv", hidden, 3 * hidden, bias=bias)
        + rotary()
        + attention_core(heads, qkv_elements=5 * hidden)  # value is a view of the fused projection
        + dense("attn.Wo", hidden, hidden, bias=bias)
        + dropout("attn.out_drop", hidden, config.frac("attention_dropout"))
        + layer_norm("mlp_norm", hidden, bias=config.flag("norm_bias"))
        + fused_gated_mlp(("Wi", "mlp.Wo"), hidden, inner, config.text("hidden_act"), bias=config.flag("mlp_bias"))
        + dropout("mlp.drop", inner, config.frac("mlp_dropout"))
        + kernels(2)
    )


def _head(config: ConfigReader, target: Target, norm_bias: bool) -> tuple[ModuleGroup, ...]:
    hidden = config.size("hidden_size")
    dense_layer = (
        dense("head.dense", hidden, hidden, bias=config.flag("classifier_bias"))
        + Part(num_params=hidden * (2 if norm_bias else 1))
        + keeps("last_hidden_state", "other", hidden)
        + kernels(2)
    )
    return (
        group("head", "head", dense_layer),
        group("classifier", "head", dense("classifier", hidden, target.num_labels, bias=True)),
    )


FAMILY = Family(
    name="modernbert",
    modality="text",
    tasks=("text_classification",),
    model_types={
        "modernbert": {
            "vocab_size": 50368,
            "hidden_size": 768,
            "intermediate_size": 1152,
            "num_hidden_layers": 22,
            "num_attention_heads": 12,
            "hidden_activation": "gelu",
            "max_position_embeddings": 8192,
            "norm_bias": False,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "layer_types": None,
            "local_attention": 128,
            "embedding_dropout": 0.0,
            "mlp_bias": False,
            "mlp_dropout": 0.0,
            "classifier_bias": False,
        }
    },
    build=build,
    renamed={"hidden_activation": "hidden_act"},
)
