"""A few samples as the model sees them: decoded tokens, special ones visible, what is cut, what the loss counts."""

from collections.abc import Sequence

from stoker.data.encoded import EncodedSplit
from stoker.data.labels import LabelSpace
from stoker.data.prepared import PreparedData
from stoker.data.report import Example, Segment
from stoker.data.tokenizer import TextTokenizer


def render_examples(data: PreparedData, count: int) -> tuple[Example, ...]:
    """`count` training samples: of middling length, long (95th percentile), the longest, then spread evenly."""
    if count <= 0 or not data.train.num_samples:
        return ()
    chosen = _chosen(data.train.lengths, count)
    if not isinstance(data.train, EncodedSplit) or data.tokenizer is None:
        labels = data.labels
        return tuple(
            Example(
                row=data.train.row_number(i),
                num_tokens=1,
                cut=False,
                segments=(Segment(text=data.train.place(i), loss=False),),
                labels=labels.words(data.train.target(i)) if labels else (),
            )
            for i in chosen
        )
    return tuple(_example(data.train, i, data.tokenizer, data.labels) for i in chosen)


def _chosen(lengths: Sequence[int], count: int) -> list[int]:
    total = len(lengths)
    by_length = sorted(range(total), key=lengths.__getitem__)
    wanted = [by_length[total // 2], by_length[int(total * 0.95)], by_length[-1]]
    wanted += [i * total // count for i in range(count)]
    return list(dict.fromkeys(wanted))[: min(count, total)]


def _example(split: EncodedSplit, i: int, tokenizer: TextTokenizer, labels: LabelSpace | None) -> Example:
    ids = [int(token) for token in split.token_ids(i)]
    mask = [bool(flag) for flag in split.loss_mask(i)] if labels is None else [False] * len(ids)
    return Example(
        row=split.row_number(i),
        num_tokens=len(ids),
        cut=split.uncut_length(i) > len(ids),
        segments=tuple(_segments(ids, mask, tokenizer)),
        labels=labels.words(split.target(i)) if labels is not None else (),
    )


def _segments(ids: Sequence[int], mask: Sequence[bool], tokenizer: TextTokenizer) -> list[Segment]:
    """Runs of equal mask, decoded each."""
    found: list[Segment] = []
    start = 0
    for position in range(1, len(ids) + 1):
        if position == len(ids) or mask[position] != mask[start]:
            found.append(Segment(text=tokenizer.decode(ids[start:position]), loss=mask[start]))
            start = position
    return found
