"""What `check` found out about the data, as plain values: split by split counts, lengths, labels, overlaps.

It is measured once, kept in the cache beside the tokens, and told as notices whenever the data is used.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stoker.core.i18n import N_, _
from stoker.data.notices import Notice

_MOSTLY_CUT_FRAC = 0.05
_MUCH_UNKNOWN_FRAC = 0.1
REASONS = {
    "missing_text": N_("no text"),
    "empty_text": N_("empty text"),
    "missing_label": N_("no label"),
    "duplicate": N_("duplicate"),
    "response_cut": N_("nothing of the response is left after the cut"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStats:
    """Tokens per sample before the cut at seq_len. `cut_frac`: share of samples cut; `unknown_frac`: of tokens."""

    mean: float
    p50: int
    p95: int
    p99: int
    maximum: int
    cut_frac: float = 0.0
    unknown_frac: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReport:
    """One split. `num_rows` read, `num_samples` kept; `duplicates`: samples whose text stood before;
    `conflicts`: texts that carry different labels; `composed_rows`: decomposed text composed."""

    name: str
    file: str
    encoding: str
    num_rows: int
    num_samples: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    label_counts: Mapping[str, int] = field(default_factory=dict)
    tokens: TokenStats | None = None
    composed_rows: int = 0
    duplicates: int = 0
    conflicts: int = 0
    quoted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of decoded tokens, and whether the loss counts them."""

    text: str
    loss: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One sample as the model sees it: decoded tokens with the special ones visible."""

    row: int
    num_tokens: int
    cut: bool
    segments: tuple[Segment, ...] = ()
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReport:
    """All splits. `leaks`: samples of the second split whose text the first has too, as `train-eval`, `train-test`,
    `eval-test`. `images_checked`: decoded to the end; `examples`: only where `check` asked for them."""

    splits: tuple[SplitReport, ...]
    leaks: Mapping[str, int] = field(default_factory=dict)
    seq_len: int | None = None
    multi_label: bool = False
    images_checked: int | None = None
    examples: tuple[Example, ...] = ()
    cache: str = ""

    def split(self, name: str) -> SplitReport | None:
        """The report of a split, or None."""
        return next((s for s in self.splits if s.name == name), None)


def token_stats(lengths: Sequence[int], *, cut: int, unknown: int) -> TokenStats:
    """Percentiles of `lengths` (at least one); `cut` samples, `unknown` tokens."""
    ordered = sorted(lengths)
    count = len(ordered)

    def point(share: float) -> int:
        return ordered[min(int(share * count), count - 1)]

    return TokenStats(
        mean=sum(ordered) / count,
        p50=point(0.50),
        p95=point(0.95),
        p99=point(0.99),
        maximum=ordered[-1],
        cut_frac=cut / count,
        unknown_frac=unknown / max(sum(ordered), 1),
    )


def notices_of(report: DataReport) -> tuple[Notice, ...]:
    """What a person should know, most consequential first."""
    return tuple(notice for rule in (_overlaps, _labels, _tokens, _dropped, _reading) for notice in rule(report))


def _overlaps(report: DataReport) -> Iterator[Notice]:
    for pair, count in report.leaks.items():
        if count:
            first, second = pair.split("-")
            yield Notice(
                "ST135",
                _("{count} samples of {second} stand in {first} too: its score flatters").format(
                    count=count, first=first, second=second
                ),
            )
    for split in report.splits:
        if split.conflicts:
            yield Notice(
                "ST136",
                _("{name}: {count} texts stand there with different labels").format(
                    name=split.name, count=split.conflicts
                ),
            )
        if split.duplicates:
            yield Notice(
                "ST134",
                _("{name}: {count} samples repeat an earlier text").format(name=split.name, count=split.duplicates),
            )


def _labels(report: DataReport) -> Iterator[Notice]:
    train = report.split("train")
    for split in report.splits:
        absent = [name for name, count in split.label_counts.items() if not count]
        if absent and split is train:
            yield Notice(
                "ST124",
                _("no training sample has the label {names}: it cannot be learnt").format(names=", ".join(absent)),
            )
        elif absent:
            yield Notice(
                "ST123",
                _("no sample of {name} has the label {names}: it is listed, not averaged").format(
                    name=split.name, names=", ".join(absent)
                ),
            )


def _tokens(report: DataReport) -> Iterator[Notice]:
    for split in report.splits:
        tokens = split.tokens
        if tokens is None:
            continue
        if tokens.cut_frac > _MOSTLY_CUT_FRAC:
            yield Notice(
                "ST145",
                _("{name}: {share:.1%} of the samples are cut at {seq_len} tokens (longest {longest})").format(
                    name=split.name, share=tokens.cut_frac, seq_len=report.seq_len, longest=tokens.maximum
                ),
            )
        if tokens.unknown_frac > _MUCH_UNKNOWN_FRAC:
            yield Notice(
                "ST147",
                _("{name}: {share:.0%} of the tokens are unknown to the tokenizer").format(
                    name=split.name, share=tokens.unknown_frac
                ),
            )


def _dropped(report: DataReport) -> Iterator[Notice]:
    for split in report.splits:
        if split.dropped:
            why = ", ".join(f"{_(REASONS.get(reason, reason))} {count}" for reason, count in split.dropped.items())
            yield Notice("ST131", _("{name}: rows left out: {why}").format(name=split.name, why=why))


def _reading(report: DataReport) -> Iterator[Notice]:
    composed = sum(split.composed_rows for split in report.splits)
    if composed:
        yield Notice(
            "ST150",
            _("{count} texts were written decomposed (NFD) and are composed before tokenising").format(count=composed),
        )
    for file in dict.fromkeys(split.file for split in report.splits if split.encoding == "cp949"):
        yield Notice("ST151", _("{file} is not UTF-8: read as cp949").format(file=file))
    for file in dict.fromkeys(split.file for split in report.splits if not split.quoted):
        yield Notice("ST152", _("{file}: quotes are read as ordinary characters").format(file=file))
