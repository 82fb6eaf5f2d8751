"""T5, Flan-T5, T0, mT5 and mT0: an encoder and a decoder of the same depth, relative positions, no biases.

Rows state one length; source and target are both taken to have it, so that each token passes both stacks.
Source of shapes: modeling_t5.py of transformers. Scores take a position bias and are always written.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import MAX_LAYERS, ConfigReader
from stoker.catalogue.models.parts.attention import Heads, attention_core, input_of
from stoker.catalogue.models.parts.head import embedding, language_head
from stoker.catalogue.models.parts.mlp import gated_mlp, plain_mlp
from stoker.catalogue.models.parts.norm import rms_norm
from stoker.catalogue.models.parts.part import Part, dense, dropout, group, kernels, weights

_BUCKETS = 32


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a T5 config."""
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    heads = Heads(
        num_heads=config.size("num_attention_heads", most=MAX_LAYERS),
        num_kv_heads=config.size("num_attention_heads", most=MAX_LAYERS),
        head_dim=config.size("d_kv"),
        dropout=config.frac("dropout_rate"),
    )
    drop = config.frac("dropout_rate")
    attention = _attention(heads, hidden, "SelfAttention") + dropout("attention", hidden, drop) + kernels(1)
    crossed = _attention(heads, hidden, "EncDecAttention") + dropout("cross", hidden, drop) + kernels(1)
    mlp = _mlp(config) + dropout("mlp", hidden, drop) + kernels(1)
    count = config.layers()
    norm = group("final_layer_norm", "norm", rms_norm("final_layer_norm", hidden), repeats=2, input_elements=hidden)
    bias = group("relative_attention_bias", "embedding", weights(_BUCKETS * heads.num_heads) + kernels(8), repeats=2)
    tied = config.flag("tie_word_embeddings")
    groups = (
        embedding("shared", vocab, hidden),
        bias,
        group("encoder.block", "block", attention + mlp, repeats=count, attention=heads.shape(causal=False),
              input_elements=hidden),
        group("decoder.block", "block", attention + mlp, repeats=count, attention=heads.shape(causal=True),
              input_elements=hidden),
        group("decoder.cross", "block", crossed, repeats=count, attention=heads.shape(causal=False),
              input_elements=hidden),
        norm,
        language_head("lm_head", hidden, vocab, tied=tied),
    )  # fmt: skip
    return Shape(
        groups=groups,
        hidden_size=hidden,
        num_hidden_layers=2 * count,
        num_outputs=vocab,
        vocab_size=vocab,
        max_position_embeddings=None,
        tie_word_embeddings=tied,
        dropout=drop,
    )


def _attention(heads: Heads, hidden: int, name: str) -> Part:
    part = rms_norm(f"{name}.layer_norm", hidden) + input_of(hidden, f"{name}.q", f"{name}.k", f"{name}.v")
    for leaf in ("q", "k", "v"):
        part += dense(f"{name}.{leaf}", hidden, heads.query_width)
    return part + attention_core(heads, always_scores=True) + dense(f"{name}.o", heads.query_width, hidden)


def _mlp(config: ConfigReader) -> Part:
    hidden, inner = config.size("hidden_size"), config.size("d_ff")
    norm = rms_norm("mlp.layer_norm", hidden)
    if config.text("feed_forward_proj").startswith("gated"):
        return norm + gated_mlp(hidden, inner, "gelu_new")
    return norm + plain_mlp(("wi", "wo"), hidden, inner, "relu", bias=False)


FAMILY = Family(
    name="seq2seq",
    modality="text",
    tasks=("causal_lm",),
    model_types={
        "t5": {
            "vocab_size": 32128,
            "d_model": 512,
            "d_kv": 64,
            "d_ff": 2048,
            "num_layers": 6,
            "num_heads": 8,
            "dropout_rate": 0.1,
            "feed_forward_proj": "relu",
            "tie_word_embeddings": True,
        }
    },
    build=build,
    renamed={"d_model": "hidden_size", "num_layers": "num_hidden_layers", "num_heads": "num_attention_heads"},
)
