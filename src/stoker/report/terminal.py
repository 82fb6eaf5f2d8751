"""A report as plain text, curves and bars drawn with characters.

Curves are braille dots where the output's encoding has them, else ASCII (cp949 and C locales have no braille):
one character cell is 2 x 4 dots, or 1 x 2.
"""

from collections.abc import Sequence
from typing import Final

from stoker.report.document import Bars, Curves, Document, Point, Section, Table
from stoker.report.tables import clip, display_width, pad, render_pairs, render_table

_WIDTH: Final = 64
_HEIGHT: Final = 8
_MARKS: Final = "o+x*#@%&"
_BRAILLE: Final = 0x2800
_BRAILLE_DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_ASCII_CELLS: Final = {(False, False): " ", (True, False): "'", (False, True): ".", (True, True): ":"}
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_ASCII_SPARKS: Final = "_.-=+*#@"


def can_show(text: str, encoding: str | None) -> bool:
    """Whether `encoding` has every character of `text`."""
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def as_text(document: Document, *, encoding: str | None = "utf-8", width: int = _WIDTH) -> str:
    """The whole report as text for a terminal or file of `encoding`; plots are `width` characters wide."""
    rule = "=" * min(display_width(document.title), 100)
    parts = [f"{document.title}\n{rule}", *(_section(section, encoding, width) for section in document.shown)]
    return "\n\n".join(parts)


def _section(section: Section, encoding: str | None, width: int) -> str:
    blocks = [render_pairs(section.pairs, indent="  ")]
    blocks += [_table(table) for table in section.tables if table.rows]
    blocks += [draw_curves(curves, encoding=encoding, width=width) for curves in section.curves if curves.drawn]
    blocks += [draw_bars(bars, encoding=encoding) for bars in section.bars if bars.bars]
    blocks += ["\n".join(f"  {line}" for line in section.lines)]
    return section.title + "\n" + "\n\n".join(block for block in blocks if block)


def _table(table: Table) -> str:
    text = render_table(table.columns, table.rows, indent="  ")
    return f"  {table.title}\n{text}" if table.title else text


def draw_curves(curves: Curves, *, encoding: str | None = "utf-8", width: int = _WIDTH, height: int = _HEIGHT) -> str:
    """Curves on one grid of `width` x `height` characters, least and greatest values beside it."""
    series = curves.drawn
    points = [point for one in series for point in one.points]
    x_low, x_high = min(p[0] for p in points), max(p[0] for p in points)
    y_low, y_high = min(p[1] for p in points), max(p[1] for p in points)
    canvas = _Canvas(width, height, braille=can_show("\u28ff", encoding))

    def place(point: Point) -> Point:
        across = (point[0] - x_low) / (x_high - x_low) if x_high > x_low else 0.0
        up = (point[1] - y_low) / (y_high - y_low) if y_high > y_low else 0.5
        return across, 1.0 - up

    plain = [one for one in series if not one.sparse]
    for one in series:
        placed = [place(point) for point in one.points]
        if one is (plain[0] if plain else None):
            canvas.line(placed)
        else:
            canvas.marks(placed, _mark(series.index(one)))
    top, bottom = curves.format_y(y_high), curves.format_y(y_low)
    margin = max(display_width(top), display_width(bottom))
    rows = canvas.rows()
    labels = [top, *[""] * (height - 2), bottom]
    lines = [f"  {curves.title}" + _legend(curves, plain[0].name if plain else "")]
    lines += [f"  {pad(label, margin, 'right')} |{row}".rstrip() for label, row in zip(labels, rows, strict=True)]
    left, right = _plain(x_low), f"{_plain(x_high)}  {curves.x_label}"
    gap = " " * max(width - len(left) - len(_plain(x_high)), 1)
    lines += [f"  {' ' * margin} +{'-' * width}", f"  {' ' * margin}  {left}{gap}{right}"]
    return "\n".join(lines)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def _mark(index: int) -> str:
    return _MARKS[index % len(_MARKS)]


def _legend(curves: Curves, lined: str) -> str:
    if len(curves.drawn) < 2:
        return ""
    names = [f"{one.name}" if one.name == lined else f"{_mark(i)} {one.name}" for i, one in enumerate(curves.drawn)]
    return ": " + ", ".join(names)


class _Canvas:
    """Dots and marks on character cells; places are fractions of the width and of the height from the top."""

    def __init__(self, width: int, height: int, *, braille: bool) -> None:
        self.width, self.height, self.braille = width, height, braille
        self.dots_across, self.dots_down = (width * 2, height * 4) if braille else (width, height * 2)
        self.dots: set[tuple[int, int]] = set()
        self.marked: dict[tuple[int, int], str] = {}

    def line(self, points: Sequence[Point]) -> None:
        """Joined dots through `points`, one column of dots after the other."""
        before: tuple[int, int] | None = None
        for across, down in points:
            here = (round(across * (self.dots_across - 1)), round(down * (self.dots_down - 1)))
            if before is not None:
                self._join(before, here)
            self.dots.add(here)
            before = here

    def _join(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]))
        for i in range(1, steps):
            self.dots.add(
                (round(start[0] + (end[0] - start[0]) * i / steps), round(start[1] + (end[1] - start[1]) * i / steps))
            )

    def marks(self, points: Sequence[Point], mark: str) -> None:
        """`mark` in the cell of each point."""
        for across, down in points:
            self.marked[(round(across * (self.width - 1)), round(down * (self.height - 1)))] = mark

    def rows(self) -> list[str]:
        """The canvas as lines of text."""
        return ["".join(self._cell(x, y) for x in range(self.width)) for y in range(self.height)]

    def _cell(self, x: int, y: int) -> str:
        if (x, y) in self.marked:
            return self.marked[(x, y)]
        if not self.braille:
            return _ASCII_CELLS[((x, y * 2) in self.dots, (x, y * 2 + 1) in self.dots)]
        bits = sum(
            _BRAILLE_DOTS[row][column]
            for row in range(4)
            for column in range(2)
            if (x * 2 + column, y * 4 + row) in self.dots
        )
        return chr(_BRAILLE + bits) if bits else " "


def draw_bars(bars: Bars, *, encoding: str | None = "utf-8", width: int = 40) -> str:
    """Horizontal bars with their names before and their lengths in words behind."""
    full = "█" if can_show("█", encoding) else "#"
    longest = bars.longest
    names = [clip(bar.name, 36) for bar in bars.bars]
    margin = max(display_width(name) for name in names)
    lines = [f"  {bars.title}"]
    for name, bar in zip(names, bars.bars, strict=True):
        length = max(round(width * bar.value / longest), 1) if longest > 0 and bar.value > 0 else 0
        lines.append(f"  {pad(name, margin)} |{_bar(full * length, bars, width)} {bar.text}")
    return "\n".join(lines)


def _bar(drawn: str, bars: Bars, width: int) -> str:
    """A bar, with `|` where the reference lies: in the bar, or beyond its end."""
    if bars.reference is None or bars.longest <= 0:
        return drawn
    place = max(round(width * bars.reference / bars.longest), 1) - 1
    return drawn[:place].ljust(place) + "|" + drawn[place + 1 :]
