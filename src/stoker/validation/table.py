"""Reading a CSV of the public schema (columns as in the validation data's README) into measurements.

A table that lacks a column that every row needs, holds no row, or is no text raises; one bad cell makes only its row
not scored, with the column and the cell named.
"""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoker.core.errors import RecordError
from stoker.core.i18n import _
from stoker.core.io import why_no_file
from stoker.core.measurement import Measurement
from stoker.data.encodings import detect_encoding

REQUIRED: Final = ("source", "model", "gpu", "metric", "value")
_WHOLE: Final = {
    "params": "num_params",
    "n_gpus": "num_gpus",
    "micro_batch": "micro_batch_size",
    "global_batch": "global_batch_size",
    "seq_len": "seq_len",
}
_LEAST: Final = 1e-9  # a nanosecond, a byte in GB: below it nothing was measured
_MOST: Final = 1e16
_LONGEST_CELL: Final = 100_000
_THOUSANDS: Final = re.compile(r"[-+]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")
_OTHER_DELIMITERS: Final = {";": ";", "\t": "TAB", "|": "|"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line: its own columns, and the measurement or the `problem` that kept it from being one."""

    columns: Mapping[str, str]
    line: int
    measurement: Measurement | None = None
    problem: str = ""


def read_table(path: Path) -> list[Row]:
    """The rows of a CSV file, UTF-8 (with or without a mark) or cp949.

    Raises RecordError ST610 (no such file), ST611 (columns missing), ST612 (no row), ST613 (quotes) or ST614 (a column
    twice), DataError for the encoding.
    """
    if not path.is_file():
        raise RecordError("ST610", why_no_file(path), place=str(path), fix=_("give a CSV file after --rows"))
    codec = detect_encoding(path)
    csv.field_size_limit(_LONGEST_CELL)
    text = path.read_text(encoding=codec, errors="strict")
    return rows_of(text, str(path))


def rows_of(text: str, place: str) -> list[Row]:
    """The rows of a CSV text; `place`: its name, for errors."""
    # strict: else a quote that never closes takes all rows after it into one cell, without a word
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), restkey="", strict=True)
    rows: list[Row] = []
    line = 1
    try:
        header = [name.strip() for name in reader.fieldnames or []]
        _check_header(header, f"{place}:1")
        reader.fieldnames = header
        line = reader.line_num + 1
        for columns in reader:
            rows.append(_row(columns, reader.line_num, len(header)))
            line = reader.line_num + 1
    except csv.Error as error:
        raise RecordError(
            "ST613",
            _("the CSV cannot be read: {error}").format(error=error),
            place=f"{place}:{line}",
            fix=_("check the quotes of that line"),
        ) from None
    if not rows:
        raise RecordError("ST612", _("the table has no rows"), place=place, fix=_("give a CSV with measured rows"))
    return rows


def _check_header(header: Sequence[str], place: str) -> None:
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        fix = _("the columns are those of the public validation table: {names}").format(
            names=", ".join((*REQUIRED, *_WHOLE, "method", "precision", "unit", "notes"))
        )
        other = [shown for mark, shown in _OTHER_DELIMITERS.items() if len(header) == 1 and mark in header[0]]
        if other:
            fix = _("separate the cells by commas; this file seems to use {mark}").format(mark=other[0])
        raise RecordError(
            "ST611",
            _("columns are missing: {names}").format(names=", ".join(missing)),
            place=place,
            fix=fix,
        )
    twice = [name for index, name in enumerate(header) if name and name in header[:index]]
    if twice:
        raise RecordError(
            "ST614",
            _("the column {name} stands twice").format(name=twice[0]),
            place=place,
            fix=_("keep one of the two"),
        )


def _row(cells: Mapping[str, str | None], line: int, width: int) -> Row:
    columns = {
        name: (cell or "").strip() for name, cell in cells.items() if name and isinstance(cell, (str, type(None)))
    }
    if "" in cells or any(cell is None for cell in cells.values()):
        return Row(columns=columns, line=line, problem=f"line {line}: not {width} cells")
    try:
        return Row(columns=columns, line=line, measurement=_measurement(columns, line))
    except ValueError as error:
        return Row(columns=columns, line=line, problem=str(error))


def _measurement(columns: Mapping[str, str], line: int) -> Measurement:
    def text(*names: str) -> str:
        return next((columns[name] for name in names if columns.get(name)), "")

    for name in REQUIRED:
        if not columns[name] and name != "gpu":
            raise ValueError(f"line {line}, column {name}: empty")
    whole = {field: _whole(columns.get(column, ""), line, column) for column, field in _WHOLE.items()}
    note = text("notes", "note")
    return Measurement(
        source=text("source"),
        table=" ".join(part for part in (text("repo_or_paper"), text("path_or_table")) if part),
        model=text("model"),
        metric=text("metric"),
        value=_number(columns["value"], line, "value"),
        unit=text("unit"),
        method=text("method"),
        precision=text("precision"),
        optimizer=text("optimizer"),
        gpu=text("gpu"),
        gpu_gb=_number(columns["gpu_mem_gb"], line, "gpu_mem_gb") if columns.get("gpu_mem_gb") else None,
        strategy=text("strategy"),
        recompute=text("act_ckpt"),
        attention=text("flash_attn"),
        quality=text("quality") or "measured",
        role=text("role") or _role(note),
        note=note,
        line=line,
        **whole,
    )


def _role(note: str) -> str:
    after = note.partition("role=")[2]
    return after.split(";")[0].strip() if after else ""


def _number(cell: str, line: int, column: str) -> float:
    try:
        value = float(cell.replace(",", "") if _THOUSANDS.fullmatch(cell) else cell)
    except ValueError:
        raise ValueError(f"line {line}, column {column}: {cell[:60]!r} is no number") from None
    if not math.isfinite(value) or value <= 0.0:
        raise ValueError(f"line {line}, column {column}: {cell[:60]!r} is not a positive number")
    if not _LEAST <= value < _MOST:
        raise ValueError(f"line {line}, column {column}: {cell[:60]!r} is no size, time or rate of anything")
    return value


def _whole(cell: str, line: int, column: str) -> int | None:
    if not cell:
        return None
    value = _number(cell, line, column)
    if value != int(value):
        raise ValueError(f"line {line}, column {column}: {cell[:60]!r} is no whole number")
    return int(value)
