"""Drafts to tokens: batches through the tokenizer, cut at seq_len, written to Arrow with mask and target."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.data.causal_text import CausalSample
from stoker.data.chat import Span
from stoker.data.drafts import RESPONSE_CUT, Draft
from stoker.data.encoded import SplitWriter
from stoker.data.labels import LabelSpace, Target
from stoker.data.tokenizer import TextTokenizer

Progress = Callable[[str, int, int], None]
_TELL_EVERY = 4096
_UNUSABLE_UNKNOWN_FRAC = 0.5


@dataclass(slots=True)
class EncodeCounts:
    """`lengths`: tokens of every kept sample before the cut; `cut` samples; `unknown` of `content` tokens,
    special ones apart; `text_bytes` in UTF-8."""

    lengths: "array[int]" = field(default_factory=lambda: array("q"))
    cut: int = 0
    unknown: int = 0
    content: int = 0
    text_bytes: int = 0


def write_split(
    path: Path,
    draft: Draft,
    targets: Sequence[Target] | None,
    labels: LabelSpace | None,
    tokenizer: TextTokenizer,
    *,
    seq_len: int,
    embedding_rows: int | None,
    progress: Progress | None = None,
) -> EncodeCounts:
    """Tokenise `draft` into `path`; its drop counts grow by what the cut makes useless.

    Raises DataError ST142 when more than half of the tokens are unknown, ST143 for an id outside the embedding.
    """
    counts = EncodeCounts()
    writer = SplitWriter(
        path,
        num_targets=len(labels) if labels and labels.problem == "multi_label" else int(labels is not None),
        wide=labels is not None and labels.problem == "multi_label",
        masked=draft.samples is not None and any(sample.spans is not None for sample in draft.samples),
        typed=draft.pairs is not None,
    )
    try:
        encoded = _causal(draft, tokenizer, seq_len) if draft.samples is not None else _texts(draft, tokenizer, seq_len)
        unknown_id = tokenizer.special_id("unk")
        added = int(tokenizer.backend.num_special_tokens_to_add(draft.pairs is not None))
        for i, (ids, types, mask, length) in enumerate(encoded):
            if progress is not None and i % _TELL_EVERY == 0:
                progress(draft.name, i, len(draft))
            if mask is not None and not any(mask[1:]):
                draft.drop(RESPONSE_CUT)
                continue
            if embedding_rows is not None and max(ids, default=0) >= embedding_rows:
                raise _outside(draft, i, max(ids), embedding_rows)
            counts.lengths.append(length)
            counts.cut += length > seq_len
            counts.unknown += ids.count(unknown_id) if unknown_id is not None else 0
            counts.content += max(len(ids) - added, 0)
            counts.text_bytes += len(draft.texts[i].encode("utf-8", "surrogatepass"))
            writer.add(
                ids=ids,
                row=draft.table.row_numbers[draft.rows[i]],
                uncut=length,
                types=types,
                mask=mask if mask is not None else b"\x01" * len(ids),
                target=None if targets is None else targets[i],
            )
    finally:
        writer.close()
    _require_known(draft, counts, tokenizer)
    return counts


_Encoded = tuple[list[int], list[int] | None, bytes | bytearray | None, int]


def _texts(draft: Draft, tokenizer: TextTokenizer, seq_len: int) -> Iterator[_Encoded]:
    typed = draft.pairs is not None
    for encoding, length in tokenizer.encode(draft.texts, draft.pairs, seq_len=seq_len):
        yield encoding.ids, encoding.type_ids if typed else None, None, length


def _causal(draft: Draft, tokenizer: TextTokenizer, seq_len: int) -> Iterator[_Encoded]:
    samples = draft.samples or []
    special = bool(samples) and samples[0].special  # one form for a whole job
    end = tokenizer.special_id("eos") if special else None
    for sample, encoding in zip(
        samples, tokenizer.encode_with_offsets([s.text for s in samples], special=special), strict=True
    ):
        ids = encoding.ids
        mask = None if sample.spans is None else _mask(sample, encoding, len(ids))
        if end is not None and (not ids or ids[-1] != end):
            ids.append(end)
            if mask is not None:
                mask.append(1)
        elif mask is not None and special and ids and ids[-1] == end:
            mask[-1] = 1
        yield ids[:seq_len], None, None if mask is None else mask[:seq_len], len(ids)


def _mask(sample: CausalSample, encoding: Any, num_tokens: int) -> bytearray:
    """1 for the tokens of the sample's spans."""
    mask = bytearray(num_tokens)
    for span in sample.spans or ():
        first, last = _tokens_of(span, encoding, sample.text)
        mask[first:last] = b"\x01" * (last - first)
    return mask


def _tokens_of(span: Span, encoding: Any, text: str) -> tuple[int, int]:
    """(first token of `span`, one past its last); spaces that no token covers are stepped over.

    A token that begins before the span belongs to it when only space precedes: after the prompt "A:" the model is to
    say " four", one token. When the prompt's own letters are in it, it does not.
    """
    start, end = span
    first = next((t for t in map(encoding.char_to_token, range(start, end)) if t is not None), None)
    if first is None:
        return 0, 0
    if text[encoding.token_to_chars(first)[0] : start].strip():
        first += 1
    last = next(t for t in map(encoding.char_to_token, range(end - 1, start - 1, -1)) if t is not None)
    return first, max(last + 1, first)


def _require_known(draft: Draft, counts: EncodeCounts, tokenizer: TextTokenizer) -> None:
    if counts.content and counts.unknown > _UNUSABLE_UNKNOWN_FRAC * counts.content:
        raise DataError(
            "ST142",
            _("{share:.0%} of the tokens of {name} are unknown to the tokenizer").format(
                share=counts.unknown / counts.content, name=draft.name
            ),
            place=tokenizer.source,
            fix=_("the vocabulary is not this text's, or was lost: load the tokenizer that belongs to the model"),
        )


def _outside(draft: Draft, i: int, token: int, rows: int) -> DataError:
    return DataError(
        "ST143",
        _("token id {token} lies outside the model's embedding of {rows} rows").format(token=token, rows=rows),
        place=draft.place(i),
        fix=_("use the tokenizer that belongs to the model"),
    )


def make_targets(draft: Draft, labels: LabelSpace, *, declared: bool) -> list[Target]:
    """Class indices or 0/1 lists of the draft. Raises DataError ST121 or ST125 naming the row."""
    from stoker.data.labels import unknown_class

    if labels.problem == "multi_label":
        return list(draft.labels)
    index = {name: i for i, name in enumerate(labels.names)}
    targets: list[Target] = []
    for i, label in enumerate(draft.labels):
        if label not in index:
            raise unknown_class(label, labels, draft.place(i), declared=declared)
        targets.append(index[label])
    return targets


def count_labels(targets: Iterable[Target], labels: LabelSpace) -> dict[str, int]:
    """Samples of each label, in the labels' order, zeros kept."""
    counts = [0] * len(labels)
    for target in targets:
        if isinstance(target, int):
            counts[target] += 1
        else:
            for i, on in enumerate(target):
                counts[i] += on
    return dict(zip(labels.names, counts, strict=True))
