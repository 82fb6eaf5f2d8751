"""Charts as inline SVG for the HTML report: no script, colours from the page's CSS variables, all text escaped.

Lengths are SVG user units; a chart is 640 wide and scales with the page.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from stoker.report.document import Bars, Curves, Point
from stoker.report.tables import clip, display_width

_WIDTH: Final = 640
_HEIGHT: Final = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 14, 14, 40
_COLOURS: Final = 6
_TEXT_ROOM: Final = 60  # user units that the words behind a bar take
_MAX_POINTS: Final = 1200


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) inside `low` to `high`."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def curves_svg(curves: Curves) -> str:
    """Lines over a common axis, with grid, axis labels and a legend under the picture."""
    series = curves.drawn
    points = [point for one in series for point in one.points]
    x_low, x_high = _widened(min(p[0] for p in points), max(p[0] for p in points))
    y_low, y_high = _widened(min(p[1] for p in points), max(p[1] for p in points))
    inner_width, inner_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(point: Point) -> Point:
        across = _LEFT + (point[0] - x_low) / (x_high - x_low) * inner_width
        return across, _TOP + (y_high - point[1]) / (y_high - y_low) * inner_height

    parts = [_open(_HEIGHT, curves.title)]
    for value in ticks(y_low, y_high):
        y = place((x_low, value))[1]
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 8, y + 4, curves.format_y(value), "end"))
    for value in ticks(x_low, x_high, 6):
        parts.append(_text(place((value, y_low))[0], _HEIGHT - _BOTTOM + 16, f"{value:,g}", "middle"))
    parts.append(_text(_LEFT + inner_width / 2, _HEIGHT - 6, curves.x_label, "middle"))
    for index, one in enumerate(series):
        placed = [place(point) for point in _thinned(one.points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline class="c{index % _COLOURS}" points="{path}"/>')
        if one.sparse or len(placed) == 1:
            parts += [f'<circle class="d{index % _COLOURS}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in placed]
    parts.append("</svg>")
    keys = "".join(f'<li><i class="k{i % _COLOURS}"></i>{escape(one.name)}</li>' for i, one in enumerate(series))
    return _figure(curves.title, "".join(parts), f'<ul class="legend">{keys}</ul>' if len(series) > 1 else "")


def bars_svg(bars: Bars) -> str:
    """Horizontal bars from zero, whiskers where an interval is known."""
    names = [clip(bar.name, 40) for bar in bars.bars]
    left = min(max(max(display_width(name) for name in names) * 7 + 14, 60), 300)
    row, inner = 26, _WIDTH - left - 110
    longest = bars.longest or 1.0
    height = row * len(names) + 8
    parts = [_open(height, bars.title)]
    for index, (name, bar) in enumerate(zip(names, bars.bars, strict=True)):
        y = 4 + index * row
        length = max(bar.value, 0.0) / longest * inner
        parts.append(_text(left - 8, y + 16, name, "end"))
        parts.append(
            f'<rect class="d{index % _COLOURS}" x="{left}" y="{y + 4}" width="{length:.1f}" height="16" rx="2"/>'
        )
        if bar.low is not None and bar.high is not None:
            low, high = left + bar.low / longest * inner, left + bar.high / longest * inner
            parts.append(f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{y + 12}" y2="{y + 12}"/>')
        end = left + bars.text_place(bar, _TEXT_ROOM / inner * longest) / longest * inner
        parts.append(_text(end + 6, y + 16, bar.text, "start"))
    if bars.reference is not None:
        x = left + bars.reference / longest * inner
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>')
    parts.append("</svg>")
    return _figure(bars.title, "".join(parts), "")


def _open(height: float, title: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _figure(title: str, picture: str, legend: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{picture}{legend}</figure>"


def _widened(low: float, high: float) -> Point:
    """The range, widened where it is a single value."""
    if high > low:
        return low, high
    room = abs(low) * 0.1 or 1.0
    return low - room, high + room


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """At most 1,200 points: of each stretch the first, lowest and highest, so that spikes stay."""
    if len(points) <= _MAX_POINTS:
        return points
    size = math.ceil(len(points) / (_MAX_POINTS // 3))
    kept: list[Point] = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        chosen = {part[0], min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])}
        kept += sorted(chosen)
    kept.append(points[-1])
    return kept
