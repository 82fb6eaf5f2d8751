"""csv and tsv: quoted newlines allowed, every row as wide as the header, lines and fields capped while streaming."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.data.encodings import detect_encoding
from stoker.data.table import MAX_FIELD_CHARS, MAX_LINE_CHARS, Table, compose_name, require_columns, require_once


def read_delimited(file: Path, wanted: tuple[str, ...], *, encoding: str | None, delimiter: str) -> Table:
    """The `wanted` columns of a csv (`,`) or tsv (tab) file with a header row. Raises DataError ST104 to ST112.

    Many tsv files know no quoting and hold stray quotes: such a file is read again with quotes as ordinary
    characters when quoting does not make sense of it.
    """
    codec = detect_encoding(file, encoding)
    try:
        return _read(file, wanted, codec, delimiter, quoted=True)
    except DataError as error:
        if delimiter != "\t" or error.code not in ("ST106", "ST109"):
            raise
        try:
            return _read(file, wanted, codec, delimiter, quoted=False)
        except DataError:
            raise error from None


def capped_lines(stream: TextIO, file: Path) -> Iterator[str]:
    """Lines of `stream`, each at most MAX_LINE_CHARS. Raises DataError ST109 naming the line."""
    number = 0
    while line := stream.readline(MAX_LINE_CHARS + 1):
        number += 1
        if len(line) > MAX_LINE_CHARS:
            raise DataError(
                "ST109",
                _("the line is longer than {limit} characters").format(limit=MAX_LINE_CHARS),
                place=f"{file}:{number}",
                fix=_("is this a text table? Split the line, or cut the text before"),
            )
        yield line


def _read(file: Path, wanted: tuple[str, ...], codec: str, delimiter: str, *, quoted: bool) -> Table:
    csv.field_size_limit(MAX_FIELD_CHARS)
    with file.open(encoding=codec, errors="strict", newline="") as stream:
        rows = csv.reader(
            capped_lines(stream, file),
            delimiter=delimiter,
            quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
            strict=quoted,
        )
        header = _header(rows, file)
        require_once(f"{file}:1", wanted, header)
        require_columns(file, wanted, header)
        places = [header.index(name) for name in wanted]
        columns: list[list[Any]] = [[] for _name in wanted]
        row_numbers: list[int] = []
        for start, row in _numbered(rows, file):
            if len(row) != len(header):
                raise _ragged(file, start, row, header)
            if delimiter == "\t" and quoted and any("\n" in cell and "\t" in cell for cell in row):
                raise DataError("ST106", _("a quote swallows rows"), place=f"{file}:{start}")
            row_numbers.append(start)
            for column, place in zip(columns, places, strict=True):
                column.append(row[place])
    return Table(
        file=file,
        names=tuple(header),
        columns=dict(zip(wanted, columns, strict=True)),
        row_numbers=row_numbers,
        encoding=codec,
        quoted=quoted,
    )


def _header(rows: Any, file: Path) -> list[str]:
    for _start, row in _numbered(rows, file):
        return [compose_name(cell) for cell in row]
    raise DataError("ST104", _("the file holds no row"), place=str(file), fix=_("check how it was written"))


def _numbered(rows: Any, file: Path) -> Iterator[tuple[int, list[str]]]:
    """(line where the row starts, cells) of every row that is not blank."""
    start = rows.line_num + 1
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            too_long = "field limit" in str(error)
            raise DataError(
                "ST109" if too_long else "ST106",
                _("a cell is longer than {limit} characters").format(limit=MAX_FIELD_CHARS)
                if too_long
                else _("the row cannot be read: {error}").format(error=error),
                place=f"{file}:{start}",
                fix=_('look for a quote (") that is not closed in this row or before; a quote inside a cell is ""'),
            ) from error
        if row:
            yield start, row
        start = rows.line_num + 1


def _ragged(file: Path, start: int, row: list[str], header: list[str]) -> DataError:
    return DataError(
        "ST106",
        _("the row has {got} cells, the header has {want}").format(got=len(row), want=len(header)),
        place=f"{file}:{start}",
        fix=_("a cell that holds a separator or a newline must stand in quotes"),
    )
