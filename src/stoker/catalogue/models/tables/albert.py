"""ALBERT: BERT's block, whose one set of weights is used at every depth; embeddings are narrower than the blocks.

Source of shapes: modeling_albert.py of transformers.
"""

from dataclasses import replace

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.encoder import (
    EncoderNames,
    encoder_block,
    encoder_heads,
    encoder_shape,
    text_embedding,
)
from stoker.catalogue.models.parts.head import pooled_head
from stoker.catalogue.models.parts.part import group


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of an ALBERT config: the first block owns the weights, the others only compute with them."""
    hidden = config.size("hidden_size")
    tables = config.size("max_position_embeddings") + config.size("type_vocab_size", least=0)
    block = encoder_block(config, EncoderNames())
    attention = encoder_heads(config).shape(causal=False)
    first = group("layers", "block", block, attention=attention, input_elements=hidden)
    groups = [
        text_embedding(config, tables=tables, width=config.size("embedding_size"), project_to=hidden),
        first,
        *pooled_head(hidden, target.num_labels, inner=("pooler", "pooler")),
    ]
    if config.layers() > 1:
        groups.insert(2, replace(first, name="layers.again", num_params=0, repeats=config.layers() - 1))
    return encoder_shape(config, tuple(groups), target)


FAMILY = Family(
    name="albert",
    modality="text",
    tasks=("text_classification",),
    model_types={
        "albert": {
            "vocab_size": 30000,
            "embedding_size": 128,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
        }
    },
    build=build,
)
