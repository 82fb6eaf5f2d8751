"""A report's charts as one PNG, drawn by matplotlib, which is loaded only here.

Text in Korean needs a font that has the glyphs: an installed CJK font is used where there is one; else the labels
are the English ones and what is not Latin in names becomes `?`, so that no box and no warning appears.
"""

import io
from pathlib import Path
from typing import Any, Final

from stoker.core.errors import EnvironmentProblem
from stoker.core.i18n import _
from stoker.report.document import Bars, Curves, Document

_FONTS: Final = (
    "Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "NanumBarunGothic", "Nanum Gothic", "Malgun Gothic",
    "Apple SD Gothic Neo", "AppleGothic", "UnDotum", "Baekmuk Dotum", "Noto Sans CJK JP", "Source Han Sans KR",
    "Droid Sans Fallback", "WenQuanYi Zen Hei",
)  # fmt: skip


def korean_font() -> str | None:
    """The name of an installed font with Korean glyphs, or None.

    matplotlib lists the fonts once and keeps the list: one that was installed since is looked for among the files.
    """
    from matplotlib import font_manager

    names = {entry.name for entry in font_manager.fontManager.ttflist}
    known = next((name for name in _FONTS if name in names), None)
    if known is None:
        wanted = {name.replace(" ", "").lower() for name in _FONTS} | {"notosanscjk"}
        for file in sorted(font_manager.findSystemFonts()):
            if Path(file).stem.partition("-")[0].replace(" ", "").lower() in wanted:
                font_manager.fontManager.addfont(file)
        names = {entry.name for entry in font_manager.fontManager.ttflist}
        known = next((name for name in _FONTS if name in names), None)
    return known


def require_matplotlib() -> None:
    """Raises EnvironmentProblem ST605 where matplotlib is missing."""
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        raise EnvironmentProblem(
            "ST605",
            _("a PNG needs matplotlib, which is not installed"),
            place="--png",
            fix=_("pip install 'stoker[plots]', or take --html: its charts need nothing"),
        )


def as_png(document: Document) -> bytes:
    """All charts of the report under each other, as PNG bytes. Raises EnvironmentProblem ST605."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    charts: list[Curves | Bars] = []
    for section in document.shown:
        charts += [curves for curves in section.curves if curves.drawn]
        charts += [bars for bars in section.bars if bars.bars]
    font = korean_font()
    heights = [2.6 if isinstance(chart, Curves) else 0.7 + 0.32 * len(chart.bars) for chart in charts] or [1.0]
    figure = Figure(figsize=(8.0, sum(heights) + 0.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_safe(document.title, font), **_font(font))
    axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)
    for chart, axis in zip(charts, axes[:, 0], strict=False):
        if isinstance(chart, Curves):
            _draw_curves(axis, chart, font)
        else:
            _draw_bars(axis, chart, font)
    if not charts:
        axes[0, 0].set_axis_off()
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _safe(text: str, font: str | None) -> str:
    """`text` as literal characters that the font has: `$` is no formula."""
    if font is None:
        text = text.encode("latin-1", errors="replace").decode("latin-1")
    return "".join(char for char in text if char.isprintable()).replace("$", r"\$")


def _font(font: str | None) -> dict[str, Any]:
    return {"fontfamily": font} if font else {}


def _draw_curves(axis: Any, curves: Curves, font: str | None) -> None:
    for one in curves.drawn:
        xs, ys = [p[0] for p in one.points], [p[1] for p in one.points]
        axis.plot(xs, ys, label=_safe(one.name, font), marker="o" if one.sparse else None, linewidth=1.3, markersize=4)
    axis.set_title(_safe(curves.title, font), fontsize=10, loc="left", **_font(font))
    axis.set_xlabel(_safe(curves.x_label, font), **_font(font))
    axis.yaxis.set_major_formatter(lambda value, _position: _safe(curves.format_y(value), font))
    axis.grid(alpha=0.3)
    _dress(axis, font)
    if len(curves.drawn) > 1:
        axis.legend(fontsize=8, prop={"family": font, "size": 8} if font else None)


def _draw_bars(axis: Any, bars: Bars, font: str | None) -> None:
    places = range(len(bars.bars))
    axis.barh(list(places), [bar.value for bar in bars.bars], height=0.6)
    axis.set_yticks(list(places), [_safe(bar.name, font) for bar in bars.bars])
    axis.invert_yaxis()
    axis.set_xticks([])
    axis.set_xlim(0.0, (bars.longest or 1.0) * 1.25)
    for place, bar in zip(places, bars.bars, strict=True):
        if bar.low is not None and bar.high is not None:
            axis.plot([bar.low, bar.high], [place, place], color="black", linewidth=1.5)
        axis.text(
            bars.text_place(bar, 0.1 * bars.longest),
            place,
            " " + _safe(bar.text, font),
            va="center",
            fontsize=8,
            **_font(font),
        )
    if bars.reference is not None:
        axis.axvline(bars.reference, color="black", linestyle="--", linewidth=1.0)
    axis.set_title(_safe(bars.title, font), fontsize=10, loc="left", **_font(font))
    axis.spines[["top", "right", "bottom"]].set_visible(False)
    _dress(axis, font)


def _dress(axis: Any, font: str | None) -> None:
    for label in (*axis.get_xticklabels(), *axis.get_yticklabels()):
        label.set_fontsize(8)
        if font:
            label.set_fontfamily(font)
