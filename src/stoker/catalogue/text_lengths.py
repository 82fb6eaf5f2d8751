"""Text lengths of public data sets that measurements were made on, from data/text_lengths.csv."""

import functools
from dataclasses import dataclass

from stoker.catalogue.tables import read_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLengths:
    """Tokens a sample: mean, standard deviation and longest."""

    words: str
    tokens_mean: float
    tokens_std: float
    tokens_max: float


def find_text_lengths(note: str) -> TextLengths | None:
    """The data set whose words stand in `note` (any case), or None."""
    text = note.casefold()
    return next((row for row in _rows() if row.words in text), None)


@functools.cache
def _rows() -> tuple[TextLengths, ...]:
    return tuple(
        TextLengths(
            words=row["words"],
            tokens_mean=float(row["tokens_mean"]),
            tokens_std=float(row["tokens_std"]),
            tokens_max=float(row["tokens_max"]),
        )
        for row in read_rows("text_lengths.csv")
    )
