"""Post-norm encoder blocks (BERT's) and their embeddings, per token. Sums to 34 bytes x hidden in 16-bit training."""

from dataclasses import dataclass

from stoker.catalogue.models.family import Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.attention import Heads, attention_core, input_of
from stoker.catalogue.models.parts.head import embedding
from stoker.catalogue.models.parts.mlp import activation
from stoker.catalogue.models.parts.norm import layer_norm
from stoker.catalogue.models.parts.part import Part, dense, dropout, keeps_input, kernels, weights
from stoker.core.ledger import ModuleGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderNames:
    """Names of a block's linears and norms in the module tree."""

    query: str = "query"
    key: str = "key"
    value: str = "value"
    output: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    output_norm: str = "output.LayerNorm"


def encoder_heads(config: ConfigReader) -> Heads:
    """Heads of a BERT-like config. Raises ModelError ST205 where they do not divide the width."""
    num_heads = config.size("num_attention_heads")
    return Heads(
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=config.divides("hidden_size", "num_attention_heads"),
        dropout=config.frac("attention_probs_dropout_prob"),
        softmax_fp32=False,
    )


def projections(hidden: int, names: EncoderNames) -> Part:
    """Query, key and value from one input."""
    three = (names.query, names.key, names.value)
    part = input_of(hidden, *three)
    for name in three:
        part += dense(name, hidden, hidden, bias=True)
    return part


def post_norm_block(
    config: ConfigReader, attention: Part, names: EncoderNames, *, attention_dropout_mask: bool = True
) -> Part:
    """norm(x + attention(x)), then norm(y + mlp(y)); dropout after both halves."""
    hidden, inner = config.size("hidden_size"), config.size("intermediate_size")
    drop = config.frac("hidden_dropout_prob")
    return (
        attention
        + dense(names.output, hidden, hidden, bias=True)
        + dropout(names.output, hidden if attention_dropout_mask else 0, drop if attention_dropout_mask else 0.0)
        + layer_norm(names.attention_norm, hidden)
        + keeps_input(hidden, names.up)
        + dense(names.up, hidden, inner, bias=True)
        + activation(names.up, config.text("hidden_act"), inner)
        + keeps_input(inner, names.down)
        + dense(names.down, inner, hidden, bias=True)
        + dropout(names.down, hidden, drop)
        + layer_norm(names.output_norm, hidden)
        + kernels(2)
    )


def encoder_block(config: ConfigReader, names: EncoderNames) -> Part:
    """BERT's block."""
    heads = encoder_heads(config)
    attention = projections(config.size("hidden_size"), names) + attention_core(heads)
    return post_norm_block(config, attention, names)


def text_embedding(config: ConfigReader, *, tables: int, width: int, project_to: int | None = None) -> ModuleGroup:
    """Token table plus `tables` rows of other tables (positions, token types), norm, dropout, maybe a projection."""
    drop = config.frac("hidden_dropout_prob")
    extra = weights(tables * width) + layer_norm("embeddings.LayerNorm", width) + kernels(4)
    extra += dropout("embeddings", width, drop)
    if project_to is not None and project_to != width:
        extra += dense("embeddings_project", width, project_to, bias=True)
        extra += keeps_input(width, "embeddings_project")
    return embedding("embeddings", config.size("vocab_size"), width, extra=extra)


def encoder_shape(config: ConfigReader, groups: tuple[ModuleGroup, ...], target: Target) -> Shape:
    """The frame of an encoder built for classification."""
    return Shape(
        groups=groups,
        hidden_size=config.size("hidden_size"),
        num_hidden_layers=config.layers(),
        num_outputs=target.num_labels,
        vocab_size=config.size("vocab_size"),
        max_position_embeddings=config.size("max_position_embeddings"),
        dropout=config.frac("hidden_dropout_prob"),
    )
