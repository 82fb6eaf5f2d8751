"""Embeddings and heads: what stands before the first block and after the last.

The linears of a classification head run once a sample; the ledger counts them per token like all others, which
overstates the FLOPs of an encoder by under 1 %.
"""

from dataclasses import replace

from stoker.catalogue.models.parts.part import Part, dense, dropout, group, keeps, keeps_input, kernels, weights
from stoker.core.ledger import ModuleGroup

TOKEN_ID_BYTES = 8.0


def embedding(name: str, rows: int, width: int, *, extra: Part | None = None) -> ModuleGroup:
    """A token table and what follows it (`extra`: positions, norm, dropout); keeps the token ids (int64)."""
    part = weights(rows * width) + keeps("input_ids", "other", 1, bytes_per_element=TOKEN_ID_BYTES) + kernels(1)
    return replace(group(name, "embedding", part + (extra or Part())), tables=((rows, width),))


def language_head(name: str, width: int, vocab_size: int, *, tied: bool, bias: bool = False) -> ModuleGroup:
    """The vocabulary projection; a tied one owns no matrix, since the embedding's is counted."""
    part = dense(name, width, vocab_size, bias=bias) + keeps_input(width, name)
    tied_params = width * vocab_size if tied else 0
    return group(name, "head", part + weights(-tied_params))


def score_head(width: int, num_labels: int) -> ModuleGroup:
    """`score` of decoder classifiers: no bias, applied to every token before the last one is picked."""
    return group("score", "head", dense("score", width, num_labels) + keeps_input(width, "score"))


def pooled_head(
    width: int, num_labels: int, *, inner: tuple[str, str] | None, drop: float = 0.0
) -> tuple[ModuleGroup, ...]:
    """An encoder's classification head: an inner dense layer (group name, linear name), then the labels.

    Its input keeps the last hidden state alive, `width` elements a token.
    """
    keep_last = keeps("last_hidden_state", "other", width)
    if inner is None:
        return (group("classifier", "head", dense("classifier", width, num_labels, bias=True) + keep_last),)
    group_name, linear_name = inner
    first = dense(linear_name, width, width, bias=True) + keep_last + kernels(1)
    if group_name == "classifier":  # both layers in one module
        return (group("classifier", "head", first + dense("classifier.out_proj", width, num_labels, bias=True)),)
    last = dense("classifier", width, num_labels, bias=True) + dropout("classifier", 0.0, drop)
    return (group(group_name, "head", first), group("classifier", "head", last))
