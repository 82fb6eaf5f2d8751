"""A report before it has a form: sections of facts, tables and charts, all text already in the user's language.

`content` builds one document; the text, Markdown, HTML and PNG renderers only draw it, so all forms say the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stoker.report.tables import Column

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of finished cells under `columns`; `title` may be empty."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve; `sparse` ones (evaluations) are drawn with a mark at each point."""

    name: str
    points: Sequence[Point]
    sparse: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Curves over a common axis. `format_y`: how the vertical axis reads."""

    title: str
    x_label: str
    series: Sequence[Series]
    format_y: Callable[[float], str]

    @property
    def drawn(self) -> tuple[Series, ...]:
        """The series that have something to draw."""
        return tuple(series for series in self.series if series.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: its name, its length in the chart's unit, and the length in words; `low` to `high` is a whisker."""

    name: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Horizontal bars from zero; `reference`: a length to hold them against, drawn as a line across all."""

    title: str
    bars: Sequence[Bar]
    reference: float | None = None

    @property
    def longest(self) -> float:
        """Length of the whole axis."""
        return max(self.reference or 0.0, *(max(bar.value, bar.high or 0.0) for bar in self.bars), 0.0)

    def text_place(self, bar: Bar, room: float) -> float:
        """Where a bar's words begin: behind bar and whisker, and behind the reference where they would cross it.

        `room`: the length that words take, in the chart's unit.
        """
        end = max(bar.value, bar.high or 0.0)
        crossed = self.reference is not None and end <= self.reference <= end + room
        return self.reference if crossed and self.reference is not None else end


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled part: facts as pairs, then tables, charts and plain lines."""

    title: str
    pairs: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    curves: Sequence[Curves] = ()
    bars: Sequence[Bars] = ()
    lines: Sequence[str] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        charts = any(c.drawn for c in self.curves) or any(b.bars for b in self.bars)
        return not (any(v for _n, v in self.pairs) or any(t.rows for t in self.tables) or charts or self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The report; empty sections are skipped by `shown`."""

    title: str
    sections: Sequence[Section]

    @property
    def shown(self) -> tuple[Section, ...]:
        """Sections with content."""
        return tuple(section for section in self.sections if not section.empty)
