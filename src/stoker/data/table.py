"""A table of named columns read from csv, tsv, jsonl, json or parquet, with the row of the file each came from."""

import difflib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.core.paths import path_exists
from stoker.data.files import TABLE_SUFFIXES, missing_file, regular_file

MAX_FIELD_CHARS = 16 << 20
MAX_LINE_CHARS = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The wanted `columns` of a file, one list a column, all of the same length.

    `names`: every column of the file. `row_numbers`: line of the file where each row starts (parquet, json: row
    from 1). `encoding`: the codec it was read with, `binary` for parquet. `quoted`: False when a tsv had to be
    read without quotes.
    """

    file: Path
    names: tuple[str, ...]
    columns: Mapping[str, list[Any]]
    row_numbers: list[int]
    encoding: str
    quoted: bool = True

    @property
    def num_rows(self) -> int:
        return len(self.row_numbers)

    def place(self, position: int, column: str = "") -> str:
        """`file:row column` of the row at `position`, for errors."""
        return f"{self.file}:{self.row_numbers[position]} {column}".rstrip()


def read_table(path: Path, wanted: Iterable[str], *, encoding: str | None = None) -> Table:
    """The `wanted` columns of `path`, read by its suffix.

    Raises DataError ST101 to ST112: missing, unsafe or unreadable file, broken row, missing column.
    """
    from stoker.data.delimited import read_delimited
    from stoker.data.json_lines import read_json_array, read_json_lines

    file = regular_file(path)
    names = tuple(dict.fromkeys(compose_name(name) for name in wanted))
    suffix = table_suffix(path)
    if suffix == ".parquet":
        from stoker.data.parquet import read_parquet

        table = read_parquet(file, names)
    elif suffix in (".csv", ".tsv"):
        table = read_delimited(file, names, encoding=encoding, delimiter="," if suffix == ".csv" else "\t")
    elif suffix == ".json":
        table = read_json_array(file, names, encoding=encoding)
    else:
        table = read_json_lines(file, names, encoding=encoding)
    if table.num_rows == 0:
        raise DataError(
            "ST104",
            _("the file holds column names and no row") if table.names else _("the file holds no row"),
            place=str(path),
            fix=_("check how it was written"),
        )
    return table


def table_suffix(path: Path) -> str:
    """The suffix that says the format. Raises DataError ST103 for any other, ST101 when nothing is there."""
    suffix = path.suffix.lower()
    if suffix in TABLE_SUFFIXES:
        return suffix
    if not path_exists(path):
        raise missing_file(path)
    raise DataError(
        "ST103",
        _("the format {suffix} is not read").format(suffix=suffix or _("without a suffix")),
        place=str(path),
        fix=_("give csv, tsv, jsonl or parquet (unpacked), or an image folder"),
    )


def compose_name(name: str) -> str:
    """A column name in composed form, so that a decomposed header is still found."""
    return unicodedata.normalize("NFC", name)


def require_columns(file: Path, wanted: Iterable[str], names: Iterable[str]) -> None:
    """Raises DataError ST110 for the first wanted column that is not among `names`, naming the nearest."""
    there = tuple(names)
    for name in wanted:
        if name in there:
            continue
        near = difflib.get_close_matches(name, there, n=1, cutoff=0.5)
        listed = ", ".join(there[:30]) + (", ..." if len(there) > 30 else "")
        fix = _("columns there: {names}").format(names=listed or _("none"))
        if len(there) == 1 and any(mark in there[0] for mark in ";\t|"):
            fix += "; " + _("the file seems to use another separator: save it with commas, or as .tsv with tabs")
        elif near:
            fix = _("did you mean {name}?").format(name=near[0]) + " " + fix
        raise DataError("ST110", _("there is no column {name}").format(name=name), place=str(file), fix=fix)


def require_once(place: str, wanted: Iterable[str], names: Sequence[str]) -> None:
    """Raises DataError ST112 for a wanted column that stands more than once among `names`."""
    for name in wanted:
        if names.count(name) > 1:
            raise DataError(
                "ST112",
                _("the column {name} stands {count} times").format(name=name, count=names.count(name)),
                place=place,
                fix=_("rename or remove one of them"),
            )
