"""Vision transformers: ViT and plain DeiT. Tokens are patches plus one class token.

Source of shapes: modeling_vit.py of transformers; linears are named as there since version 5.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.attention import Heads, attention_core, input_of
from stoker.catalogue.models.parts.head import pooled_head
from stoker.catalogue.models.parts.mlp import plain_mlp
from stoker.catalogue.models.parts.norm import layer_norm
from stoker.catalogue.models.parts.part import Part, dense, dropout, group, keeps, kernels, weights
from stoker.core.i18n import _


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a ViT config."""
    hidden = config.size("hidden_size")
    image, patch, channels = config.edge("image_size"), config.edge("patch_size"), config.size("num_channels")
    if image < patch:
        raise config.wrong(
            "image_size", _("{image} is smaller than a patch of {patch}").format(image=image, patch=patch)
        )
    num_patches = (image // patch) ** 2
    tokens = num_patches + 1
    num_heads = config.size("num_attention_heads")
    heads = Heads(
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=config.divides("hidden_size", "num_attention_heads"),
        dropout=config.frac("attention_probs_dropout_prob"),
    )
    drop = config.frac("hidden_dropout_prob")
    groups = (
        group("embeddings", "embedding", _patches(hidden, channels, patch, tokens, drop)),
        group(
            "layers",
            "block",
            _block(config, heads),
            repeats=config.layers(),
            attention=heads.shape(causal=False),
            input_elements=hidden,
        ),
        group("layernorm", "norm", layer_norm("layernorm", hidden), input_elements=hidden),
        *pooled_head(hidden, target.num_labels, inner=None),
    )
    return Shape(
        groups=groups,
        hidden_size=hidden,
        num_hidden_layers=config.layers(),
        num_outputs=target.num_labels,
        image_size=image,
        tokens_per_sample=tokens,
        dropout=drop,
    )


def _patches(hidden: int, channels: int, patch: int, tokens: int, drop: float) -> Part:
    pixels = channels * patch * patch
    return (
        weights(pixels * hidden + hidden + (tokens + 1) * hidden)  # convolution, class token, positions
        + Part(flops=2.0 * pixels * hidden)
        + keeps("pixel_values", "other", pixels)
        + dropout("embeddings.dropout", hidden, drop)
        + kernels(3)
    )


def _block(config: ConfigReader, heads: Heads) -> Part:
    hidden, bias = config.size("hidden_size"), config.flag("qkv_bias")
    part = layer_norm("layernorm_before", hidden) + input_of(hidden, "q_proj", "k_proj", "v_proj")
    for name in ("q_proj", "k_proj", "v_proj"):
        part += dense(name, hidden, hidden, bias=bias)
    return (
        part
        + attention_core(heads)
        + dense("o_proj", hidden, hidden, bias=True)
        + layer_norm("layernorm_after", hidden)
        + plain_mlp(("fc1", "fc2"), hidden, config.size("intermediate_size"), config.text("hidden_act"))
        + dropout("dropout", 2 * hidden, config.frac("hidden_dropout_prob"))
        + kernels(2)
    )


FAMILY = Family(
    name="vit",
    modality="image",
    tasks=("image_classification",),
    model_types={
        "vit": {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "image_size": 224,
            "patch_size": 16,
            "num_channels": 3,
            "qkv_bias": True,
        }
    },
    build=build,
)
