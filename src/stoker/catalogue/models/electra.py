"""ELECTRA discriminators: KcELECTRA, KoELECTRA. Embeddings may be narrower than the blocks.

Source of shapes: modeling_electra.py of transformers; its classification head has a dense layer of its own.
"""

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
    """Groups of an ELECTRA config."""
    hidden = config.size("hidden_size")
    tables = config.size("max_position_embeddings") + config.size("type_vocab_size", least=0)
    groups = (
        text_embedding(config, tables=tables, width=config.size("embedding_size"), project_to=hidden),
        group(
            "encoder.layer",
            "block",
            encoder_block(config, EncoderNames()),
            repeats=config.layers(),
            attention=encoder_heads(config).shape(causal=False),
            input_elements=hidden,
        ),
        *pooled_head(hidden, target.num_labels, inner=("classifier", "classifier.dense")),
    )
    return encoder_shape(config, groups, target)


FAMILY = Family(
    name="electra",
    modality="text",
    tasks=("text_classification",),
    model_types={
        "electra": {
            "vocab_size": 30522,
            "embedding_size": 128,
            "hidden_size": 256,
            "num_hidden_layers": 12,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
        }
    },
    build=build,
)
