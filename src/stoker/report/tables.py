"""Tables as plain text and Markdown, aligned by what a terminal shows: Korean characters are two columns wide.

Plain strings in, one string out: no terminal library, because a plan must answer in well under a second.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Align = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column's title (already in the user's language) and on which side its cells stand."""

    title: str
    align: Align = "left"


def display_width(text: str) -> int:
    """Columns that `text` takes in a terminal: wide East-Asian characters two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def pad(text: str, width: int, align: Align = "left") -> str:
    """`text` filled with spaces to `width` terminal columns."""
    space = " " * max(width - display_width(text), 0)
    return space + text if align == "right" else text + space


def clip(text: str, width: int) -> str:
    """`text` in at most `width` terminal columns, `...` where something was cut; line breaks become spaces."""
    text = " ".join(text.split())
    if display_width(text) <= width:
        return text
    kept, used = "", 0
    for char in text:
        used += _char_width(char)
        if used > max(width - 3, 0):
            break
        kept += char
    return kept.rstrip() + "..."


def render_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, indent: str = "") -> str:
    """An aligned table with a rule under the titles. Columns without any content are left out."""
    shown = _filled(columns, rows)
    widths = [max(display_width(columns[i].title), *(display_width(row[i]) for row in rows), 1) for i in shown]

    def line(cells: Sequence[str]) -> str:
        parts = [pad(cells[i], width, columns[i].align) for i, width in zip(shown, widths, strict=True)]
        return (indent + "  ".join(parts)).rstrip()

    rule = indent + "  ".join("-" * width for width in widths)
    return "\n".join([line([column.title for column in columns]), rule, *(line(row) for row in rows)])


def _filled(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [i for i in range(len(columns)) if not rows or any(row[i] for row in rows)]


def markdown_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """The same table in Markdown, every cell escaped."""
    shown = _filled(columns, rows)

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    marks = ["---:" if columns[i].align == "right" else "---" for i in shown]
    body = [line([markdown_escape(row[i]) for i in shown]) for row in rows]
    return "\n".join([line([markdown_escape(columns[i].title) for i in shown]), line(marks), *body])


def markdown_escape(text: str) -> str:
    """`text` so that Markdown shows it as written, on one line."""
    text = " ".join(text.split()).replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;")
    for char in "|*_`[]":
        text = text.replace(char, "\\" + char)
    return text


def render_pairs(pairs: Sequence[tuple[str, str]], *, indent: str = "") -> str:
    """Name and value, one pair a line, values aligned; pairs without a value are left out."""
    kept = [(name, value) for name, value in pairs if value]
    width = max((display_width(name) for name, _value in kept), default=0)
    return "\n".join(f"{indent}{pad(name, width)}  {value}" for name, value in kept)
