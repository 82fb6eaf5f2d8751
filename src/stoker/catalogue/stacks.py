"""Training programs of data/stacks.csv: implementation facts by the source of a measurement.

Rows are tried in order: `source` must stand in the measurement's source (any case), and every word of `words`
(separated by `;`; spaces do not count) in its method, precision, model, strategy, attention or note. Rows whose source
is `*` are of programs that nobody described: those with words go by what a table itself says, the last one fits
everything.
"""

import functools
from collections.abc import Collection
from dataclasses import MISSING, fields, replace
from typing import Any

from stoker.catalogue.left_out import stack_without
from stoker.catalogue.tables import read_rows
from stoker.core.measurement import Measurement
from stoker.core.stack import Stack

ANY = "*"


def find_stack(measurement: Measurement, *, unseen: Collection[str] = ()) -> Stack:
    """The stack that a measurement was made with; `unseen`: sources to treat as if nobody had described them."""
    source = measurement.source.casefold()
    told = (measurement.method, measurement.precision, measurement.model, measurement.strategy, measurement.attention)
    text = _plain(" ".join((*told, measurement.note)))
    for pattern, words, stack in _rows():
        if not all(word in text for word in words):
            continue
        if pattern == ANY:
            return stack_without(stack, measurement.source) if measurement.source in unseen else stack
        if measurement.source not in unseen and pattern in source:
            return stack
    raise LookupError("stacks.csv lacks its last row")


def all_stacks() -> tuple[Stack, ...]:
    """Every row, in order."""
    return tuple(stack for _pattern, _words, stack in _rows())


def unknown_stack() -> Stack:
    """The row `*`."""
    return _rows()[-1][2]


@functools.cache
def _rows() -> tuple[tuple[str, tuple[str, ...], Stack], ...]:
    return tuple(
        (
            row["source"].casefold(),
            tuple(_plain(word) for word in row["words"].split(";") if word),
            _stack(row),
        )
        for row in read_rows("stacks.csv")
    )


def _plain(text: str) -> str:
    return text.casefold().replace(" ", "")


def _stack(row: dict[str, str]) -> Stack:
    """Cells into the fields of their names; an empty cell leaves the field's default."""
    stack = Stack(name=row["name"])
    values: dict[str, Any] = {}
    for entry in fields(Stack):
        cell = row.get(entry.name, "")
        if not cell or entry.name == "name":
            continue
        default = None if entry.default is MISSING else entry.default
        values[entry.name] = _value(cell, default, str(entry.type))
    return replace(stack, **values)


def _value(cell: str, default: object, annotation: str) -> object:
    if isinstance(default, bool) or annotation == "bool":
        return cell == "yes"
    if isinstance(default, int) or "int" in annotation.split():
        return int(cell)
    if isinstance(default, float) or "float" in annotation.split():
        return float(cell)
    return cell
