"""Rows of a table as samples before tokenising: texts, raw labels, and what was dropped and why."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.data.causal_text import CausalSample, causal_columns, causal_sample, response_column
from stoker.data.hangul import compose
from stoker.data.labels import class_name, is_missing, label_columns, zero_or_one
from stoker.data.table import Table, compose_name
from stoker.data.tokenizer import TextTokenizer

MISSING_TEXT, EMPTY_TEXT, MISSING_LABEL = "missing_text", "empty_text", "missing_label"
DUPLICATE, RESPONSE_CUT = "duplicate", "response_cut"


@dataclass(slots=True, kw_only=True)
class Draft:
    """Samples of one split. `rows`: positions in `table`; `labels`: a class name, or a list of 0/1, or None.

    `samples`: causal_lm only, beside `texts`. `dropped`: rows left out by reason. `composed`: rows whose text was
    written decomposed.
    """

    name: str
    table: Table
    num_rows: int = 0
    rows: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    pairs: list[str] | None = None
    samples: list[CausalSample] | None = None
    labels: list[Any] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    composed: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, i: int, column: str = "") -> str:
        return self.table.place(self.rows[i], column)

    def drop(self, reason: str, count: int = 1) -> None:
        """Count `count` rows as left out for `reason`."""
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def chosen(self, positions: Sequence[int], name: str) -> "Draft":
        """The samples at `positions` as a split called `name`."""
        return replace(
            self,
            name=name,
            num_rows=len(positions),
            rows=[self.rows[i] for i in positions],
            texts=[self.texts[i] for i in positions],
            pairs=None if self.pairs is None else [self.pairs[i] for i in positions],
            samples=None if self.samples is None else [self.samples[i] for i in positions],
            labels=[self.labels[i] for i in positions],
            dropped={},
            composed=0,
        )

    def text_keys(self) -> list[int]:
        """64-bit hash of each sample's text without case and spacing, for duplicates and leaks."""
        pairs = self.pairs or [""] * len(self.texts)
        return [text_key(a, b) for a, b in zip(self.texts, pairs, strict=True)]


def text_key(text: str, pair: str = "") -> int:
    """64-bit hash of a text (and its pair) without case and spacing."""
    plain = " ".join(text.casefold().split()) + ("\x1f" + " ".join(pair.casefold().split()) if pair else "")
    digest = hashlib.blake2b(compose(plain).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def text_columns(job: Job) -> tuple[str, ...]:
    """Columns of a sample's text."""
    if job.task == "causal_lm":
        return causal_columns(job.data)
    names = (job.data.text if isinstance(job.data.text, str) else None, job.data.text_pair)
    return tuple(name for name in names if name)


def draft_rows(job: Job, table: Table, positions: Sequence[int], name: str, tokenizer: TextTokenizer | None) -> Draft:
    """The samples of `table` at `positions`. Raises DataError ST111 or ST120 at the row that holds a wrong value."""
    draft = Draft(name=name, table=table, num_rows=len(positions))
    if job.task == "causal_lm":
        draft.samples = []
        _draft_causal(job, draft, positions, tokenizer)
        return draft
    _draft_classified(job, draft, positions)
    return draft


def _draft_classified(job: Job, draft: Draft, positions: Sequence[int]) -> None:
    columns = text_columns(job)
    texts = draft.table.columns[compose_name(columns[0])]
    pairs = draft.table.columns[compose_name(columns[1])] if len(columns) > 1 else None
    draft.pairs = None if pairs is None else []
    composing = job.data.normalise == "nfc"
    label_of = _label_reader(job, draft.table)
    for position in positions:
        text = _text(draft, texts[position], position, columns[0])
        if text is None:
            continue
        pair = ""
        if pairs is not None:
            found = _text(draft, pairs[position], position, columns[1])
            if found is None:
                continue
            pair = found
        label = label_of(position)
        if label is None:
            draft.drop(MISSING_LABEL)
            continue
        if composing:
            whole = compose(text), compose(pair)
            draft.composed += whole != (text, pair)
            text, pair = whole
        draft.rows.append(position)
        draft.texts.append(text)
        draft.labels.append(label)
        if draft.pairs is not None:
            draft.pairs.append(pair)


def _draft_causal(job: Job, draft: Draft, positions: Sequence[int], tokenizer: TextTokenizer | None) -> None:
    columns = causal_columns(job.data)
    needed = response_column(job.data) or columns[-1]
    values = {name: draft.table.columns[compose_name(name)] for name in columns}
    chat = job.data.text is not None and not isinstance(job.data.text, str) and job.data.text.messages
    composing = job.data.normalise == "nfc"
    for position in positions:
        row = {name: column[position] for name, column in values.items()}
        if not (chat and isinstance(row[needed], list)):
            for name in columns:
                if row[name] is not None and not isinstance(row[name], (str, int, float)):
                    raise _not_text(draft.table, position, name, row[name])
            if _text(draft, None if row[needed] is None else str(row[needed]), position, needed) is None:
                continue
        elif not row[needed]:
            draft.drop(EMPTY_TEXT)
            continue
        place = draft.table.place(position)
        if composing and any(isinstance(value, str) and compose(value) is not value for value in row.values()):
            draft.composed += any(isinstance(v, str) and compose(v) != v for v in row.values())
        sample = causal_sample(job.data, row, tokenizer, place=place, composed=composing)
        draft.rows.append(position)
        draft.texts.append(sample.text)
        draft.labels.append(0)
        if draft.samples is not None:
            draft.samples.append(sample)


def _text(draft: Draft, value: Any, position: int, column: str) -> str | None:
    """The text of a cell, or None after counting why the row is dropped."""
    if value is None or (isinstance(value, float) and is_missing(value)):
        draft.drop(MISSING_TEXT)
        return None
    if not isinstance(value, str):
        raise _not_text(draft.table, position, column, value)
    if not value.strip():
        draft.drop(EMPTY_TEXT)
        return None
    return value


def _not_text(table: Table, position: int, column: str, value: Any) -> DataError:
    return DataError(
        "ST111",
        _("the cell holds {kind}, not text").format(kind=type(value).__name__),
        place=table.place(position, column),
        fix=_("name the column of the text, or write the values as text"),
    )


def _label_reader(job: Job, table: Table) -> Callable[[int], Any]:
    """Position of a row -> its raw label: list of 0/1, class name, or None where a cell is empty."""
    names = label_columns(job)
    columns = [(name, table.columns[compose_name(name)]) for name in names]
    if job.problem == "single_label":
        name, column = columns[0]
        return lambda position: class_name(column[position], table.place(position, name))

    def read(position: int) -> Any:
        row: list[int] = []
        for name, column in columns:
            cell = column[position]
            value = cell if type(cell) is int and 0 <= cell <= 1 else zero_or_one(cell, table.place(position, name))
            if value is None:
                return None
            row.append(value)
        return row

    return read
