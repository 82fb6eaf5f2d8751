"""DeBERTa v2 and v3: attention with separate content and position terms, which always writes its score matrix.

Source of shapes: modeling_deberta_v2.py of transformers. Relative-position keys and queries are repeated for every
sample of the batch, so they count once a sample.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.attention import attention_core
from stoker.catalogue.models.parts.encoder import (
    EncoderNames,
    encoder_heads,
    encoder_shape,
    post_norm_block,
    projections,
    text_embedding,
)
from stoker.catalogue.models.parts.head import pooled_head
from stoker.catalogue.models.parts.part import MASK_BYTES, Part, dense, group, keeps, kernels, weights
from stoker.core.i18n import _

_NAMES = EncoderNames(query="query_proj", key="key_proj", value="value_proj")


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a DeBERTa-v2 config."""
    hidden = config.size("hidden_size")
    width = config.optional_size("embedding_size") or hidden
    if width != hidden:
        raise config.wrong("embedding_size", _("only the width of hidden_size is supported"))
    if config.values.get("conv_kernel_size"):
        raise config.wrong("conv_kernel_size", _("the convolution of DeBERTa-v2 xlarge is not supported"))
    tables = config.size("type_vocab_size", least=0)
    tables += config.size("max_position_embeddings") if config.flag("position_biased_input") else 0
    groups = (
        text_embedding(config, tables=tables, width=hidden),
        group("encoder.rel_embeddings", "embedding", _relative_table(config)),
        group(
            "encoder.layer",
            "block",
            post_norm_block(config, _attention(config), _NAMES),
            repeats=config.layers(),
            attention=encoder_heads(config).shape(causal=False),
            input_elements=hidden,
        ),
        *pooled_head(hidden, target.num_labels, inner=("pooler", "pooler.dense")),
    )
    return encoder_shape(config, groups, target)


def _span(config: ConfigReader) -> int:
    """Relative positions in one direction."""
    buckets = config.values.get("position_buckets")
    if isinstance(buckets, int) and buckets > 0:
        return config.size("position_buckets")
    relative = config.values.get("max_relative_positions")
    if isinstance(relative, int) and relative > 0:
        return config.size("max_relative_positions")
    return config.size("max_position_embeddings")


def _relative_table(config: ConfigReader) -> Part:
    hidden = config.size("hidden_size")
    if not config.flag("relative_attention"):
        return Part()
    part = weights(2 * _span(config) * hidden)
    if "layer_norm" in str(config.values.get("norm_rel_ebd") or "none"):
        part += weights(2 * hidden) + kernels(1)
    return part


def _attention(config: ConfigReader) -> Part:
    hidden, heads = config.size("hidden_size"), encoder_heads(config)
    part = projections(hidden, _NAMES) + attention_core(heads, always_scores=True)
    if not config.flag("relative_attention"):
        return part
    kinds = config.values.get("pos_att_type") or ""
    kinds = kinds if isinstance(kinds, str) else config.words("pos_att_type") or ()
    terms = [name for name in ("c2p", "p2c") if name in kinds]
    rows = 2 * _span(config)
    shared = config.flag("share_att_key")
    for term in terms:
        name = {"c2p": "pos_key_proj", "p2c": "pos_query_proj"}[term]
        # one projection of the relative table a step, repeated for each sample
        part += keeps(name, "attention", rows * hidden, per_sample=True) + kernels(8)
        part += keeps(f"{name}.product", "attention", rows * heads.num_heads)  # kept whole by gather
        part += Part(flops=2.0 * rows * hidden)  # each token meets all relative rows
        if not shared:
            part += dense(name, hidden, hidden, bias=True)
    scaled_key = keeps("scaled_key", "attention", hidden)  # key / scale, beside the key for the position term
    mask = keeps("attention_mask", "other", 1, bytes_per_element=MASK_BYTES, per_key=True)
    return part + scaled_key + mask


FAMILY = Family(
    name="deberta",
    modality="text",
    tasks=("text_classification",),
    model_types={
        "deberta-v2": {
            "vocab_size": 128100,
            "hidden_size": 1536,
            "num_hidden_layers": 24,
            "num_attention_heads": 24,
            "intermediate_size": 6144,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1,
            "max_position_embeddings": 512,
            "type_vocab_size": 0,
            "relative_attention": False,
            "max_relative_positions": -1,
            "position_biased_input": True,
            "pos_att_type": None,
        }
    },
    build=build,
)
