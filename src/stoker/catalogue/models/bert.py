"""BERT, RoBERTa, XLM-R and their kin (KLUE, E5, BGE-M3, MiniLM), DistilBERT.

BERT's classifier stands on a pooler; RoBERTa's and DistilBERT's bring a dense layer of their own.
Source of shapes: modeling_bert.py, modeling_roberta.py, modeling_distilbert.py of transformers.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.attention import attention_core
from stoker.catalogue.models.parts.encoder import (
    EncoderNames,
    encoder_block,
    encoder_heads,
    encoder_shape,
    post_norm_block,
    projections,
    text_embedding,
)
from stoker.catalogue.models.parts.head import pooled_head
from stoker.catalogue.models.parts.part import group

_INNER = {"bert": ("pooler", "pooler.dense"), "distilbert": ("pre_classifier", "pre_classifier")}
_DISTIL_NAMES = EncoderNames(
    query="q_lin",
    key="k_lin",
    value="v_lin",
    output="out_lin",
    attention_norm="sa_layer_norm",
    up="lin1",
    down="lin2",
    output_norm="output_layer_norm",
)


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a BERT-like config."""
    hidden = config.size("hidden_size")
    distil = config.model_type == "distilbert"
    if distil:
        attention = projections(hidden, _DISTIL_NAMES) + attention_core(encoder_heads(config))
        block = post_norm_block(config, attention, _DISTIL_NAMES, attention_dropout_mask=False)
    else:
        block = encoder_block(config, EncoderNames())
    tables = config.size("max_position_embeddings")
    tables += 0 if distil else config.size("type_vocab_size", least=0)
    heads = encoder_heads(config)
    groups = (
        text_embedding(config, tables=tables, width=hidden),
        group(
            "transformer.layer" if distil else "encoder.layer",
            "block",
            block,
            repeats=config.layers(),
            attention=heads.shape(causal=False),
            input_elements=hidden,
        ),
        *pooled_head(
            hidden, target.num_labels, inner=_INNER.get(config.model_type, ("classifier", "classifier.dense"))
        ),
    )
    return encoder_shape(config, groups, target)


_BERT = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}

FAMILY = Family(
    name="bert",
    modality="text",
    tasks=("text_classification",),
    model_types={
        "bert": _BERT,
        "roberta": {**_BERT, "vocab_size": 50265},
        "xlm-roberta": _BERT,
        "distilbert": {
            "vocab_size": 30522,
            "max_position_embeddings": 512,
            "n_layers": 6,
            "n_heads": 12,
            "dim": 768,
            "hidden_dim": 3072,
            "dropout": 0.1,
            "attention_dropout": 0.1,
            "activation": "gelu",
        },
    },
    build=build,
    renamed={
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "dim": "hidden_size",
        "hidden_dim": "intermediate_size",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "activation": "hidden_act",
    },
)
