"""Training programs of data/stacks.csv: implementation facts by the source of a measurement.

Rows are tried in order: the program's name, `source`, must stand in the measurement's source, else in its table's
repository or its note (as a word of its own, any case and spelling of hyphens; not as what another program was
compared with), and every word of `words` (separated by `;`; spaces do not count) in its method, precision, model,
strategy, attention or note. Rows whose source is `*` are of programs that nobody described: those with words go by
what a table itself says, the last one fits everything.
"""

import functools
import re
from collections.abc import Collection
from dataclasses import MISSING, fields, replace
from typing import Any

from stoker.catalogue.left_out import stack_without
from stoker.catalogue.tables import read_rows
from stoker.core.measurement import Measurement
from stoker.core.stack import Stack

ANY = "*"
_LIBRARIES = ("peft", "peft-comparison", "timm", "stoker")  # a note that names one does not say who drives it
_BESIDE = re.compile(r"(than|vs\.?|versus|against|compared (with|to)|unlike|faster|beside)\s*$", re.IGNORECASE)


def find_stack(measurement: Measurement, *, unseen: Collection[str] = (), unfitted: Collection[str] = ()) -> Stack:
    """The stack that a measurement was made with.

    `unseen`: sources to treat as if nobody had described them. `unfitted`: sources whose program is described but
    taught no factor: theirs is that of the row `*`, fitted without them.
    """
    told = (measurement.method, measurement.precision, measurement.model, measurement.strategy, measurement.attention)
    text = _plain(" ".join((*told, measurement.note)))
    rows = [(name, stack) for name, words, stack in _rows() if all(word in text for word in words)]
    if measurement.source not in unseen:
        for name, stack in rows:
            if name is not None and _names(name, measurement.source):
                return _unfitted(stack, measurement.source) if measurement.source in unfitted else stack
        told_of = f"{measurement.table.partition(' ')[0]} ; {measurement.note}"
        for name, stack in rows:
            if name is not None and stack.name not in _LIBRARIES and _names(name, told_of):
                return replace(stack, is_guess=True)  # which version, and what else was set, nobody says
    anybody = next(stack for name, stack in rows if name is None)
    return stack_without(anybody, measurement.source) if measurement.source in unseen else anybody


def _unfitted(stack: Stack, source: str) -> Stack:
    """`stack` with its facts, and the fitted factor and spread of a program that nobody timed."""
    usual = stack_without(unknown_stack(), source)
    return replace(stack, time_factor=usual.time_factor, time_spread_frac=usual.time_spread_frac)


def all_stacks() -> tuple[Stack, ...]:
    """Every row, in order."""
    return tuple(stack for _pattern, _words, stack in _rows())


def unknown_stack() -> Stack:
    """The row `*`."""
    return _rows()[-1][2]


@functools.cache
def _rows() -> tuple[tuple[re.Pattern[str] | None, tuple[str, ...], Stack], ...]:
    """(the program's name, None for `*`; words; stack), in order."""
    return tuple(
        (
            None if row["source"] == ANY else _name(row["source"]),
            tuple(_plain(word) for word in row["words"].split(";") if word),
            _stack(row),
        )
        for row in read_rows("stacks.csv")
    )


def _name(source: str) -> re.Pattern[str]:
    parts = "[^a-z0-9]*".join(re.escape(part) for part in re.split(r"[^A-Za-z0-9]+", source) if part)
    return re.compile(rf"(?<![a-z0-9]){parts}(?![a-z0-9])", re.IGNORECASE)


def _names(name: re.Pattern[str], text: str) -> bool:
    """Whether `text` names the program, and not only as what another was compared with."""
    return any(not _BESIDE.search(text[: found.start()]) for found in name.finditer(text))


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
