"""parquet: only the wanted columns, sizes checked in the metadata and again while decoding (2 MB can hold 20 GB).

Text columns stay dictionary-encoded while they are read, so that a text repeated a million times costs once.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.data.table import MAX_FIELD_CHARS, Table, compose_name, require_columns, require_once

UNREADABLE = (OSError, ValueError)  # what pyarrow raises on a torn file; UnicodeDecodeError is a ValueError
_BATCH_ROWS = 65_536
_MAX_RATIO = 200  # decoded bytes per byte of file; real text packs 2 to 20 times
_FREE_BYTES = 256 << 20  # below this no ratio is checked


def read_parquet(file: Path, wanted: tuple[str, ...]) -> Table:
    """The `wanted` columns as Python values; text of at most 16 MiB a cell. Raises DataError ST104, ST108 to ST112."""
    parquet = open_parquet(file)
    names = [compose_name(name) for name in parquet.schema_arrow.names]
    stored = stored_names(file, parquet, wanted)
    check_sizes(file, parquet, stored)
    columns: dict[str, list[Any]] = {name: [] for name in wanted}
    decoded_bytes, row = 0, 0
    try:
        for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, columns=stored):
            for name, stored_name in zip(wanted, stored, strict=True):
                values, num_bytes = column_values(batch.column(stored_name), file, row, name)
                columns[name].extend(values)
                decoded_bytes += num_bytes
            row += batch.num_rows
            _check_ratio(file, decoded_bytes)
    except UNREADABLE as error:
        raise unreadable(file, error) from error
    return Table(
        file=file,
        names=tuple(names),
        columns=columns,
        row_numbers=list(range(1, (row if wanted else parquet.metadata.num_rows) + 1)),
        encoding="binary",
    )


def open_parquet(file: Path) -> Any:
    """The ParquetFile, text columns read as dictionaries. Raises DataError ST104 or ST108."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.stat().st_size == 0:
        raise DataError("ST104", _("the file is empty"), place=str(file), fix=_("check how it was written"))
    try:
        schema = pq.read_schema(file)
        text = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        return pq.ParquetFile(file, read_dictionary=text)
    except UNREADABLE as error:
        raise unreadable(file, error) from error


def stored_names(file: Path, parquet: Any, wanted: Iterable[str]) -> list[str]:
    """The wanted columns by the names they are stored under. Raises DataError ST110 (absent) or ST112 (twice)."""
    names = [compose_name(name) for name in parquet.schema_arrow.names]
    require_columns(file, wanted, names)
    require_once(str(file), wanted, names)
    return [parquet.schema_arrow.names[names.index(name)] for name in wanted]


def check_sizes(file: Path, parquet: Any, columns: list[str]) -> None:
    """Raises DataError ST108 when the metadata announces far more than the file can honestly hold."""
    metadata = parquet.metadata
    announced = 0
    for group in range(metadata.num_row_groups):
        part = metadata.row_group(group)
        for position in range(part.num_columns):
            column = part.column(position)
            if column.path_in_schema.split(".")[0] in columns:
                announced += column.total_uncompressed_size
    _check_ratio(file, announced)
    _check_ratio(file, metadata.num_rows)  # a constant column: billions of rows in a few bytes


def column_values(column: Any, file: Path, first_row: int, name: str) -> tuple[list[Any], int]:
    """(Python values, bytes of text) of one batch's column; equal texts are one object."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column.to_pylist(), int(column.nbytes)
    positions = column.indices.to_pylist()
    words = _words(column, positions)
    sizes = {p: len(word.encode("utf-8", "surrogatepass")) if word is not None else 0 for p, word in words.items()}
    longest = max(sizes, key=sizes.__getitem__, default=None)
    if longest is not None and sizes[longest] > MAX_FIELD_CHARS:
        row = positions.index(longest) if longest in positions else 0
        raise DataError(
            "ST109",
            _("a cell is longer than {limit} characters").format(limit=MAX_FIELD_CHARS),
            place=f"{file}:{first_row + row + 1} {name}",
            fix=_("cut the text before"),
        )
    values = [None if p is None else words[p] for p in positions]
    return values, sum(sizes[p] for p in positions if p is not None)


def _words(column: Any, positions: list[int | None]) -> dict[int, Any]:
    """Dictionary index -> text: all of them, or of a short slice only those that occur."""
    if len(column) < len(column.dictionary):
        return {p: column.dictionary[p].as_py() for p in positions if p is not None}
    return dict(enumerate(column.dictionary.to_pylist()))


def _check_ratio(file: Path, decoded_bytes: int) -> None:
    size = max(file.stat().st_size, 1)
    if decoded_bytes > _FREE_BYTES and decoded_bytes > _MAX_RATIO * size:
        raise DataError(
            "ST108",
            _("{size} bytes of parquet unpack to more than {decoded} bytes").format(size=size, decoded=decoded_bytes),
            place=str(file),
            fix=_("this looks like a decompression bomb: write the table again from its source"),
        )


def unreadable(file: Path, error: Exception) -> DataError:
    """The error for a file that parquet's reader refuses."""
    return DataError(
        "ST108",
        _("not a readable parquet file: {error}").format(
            error=str(error).splitlines()[0][:200] if str(error) else error
        ),
        place=str(file),
        fix=_("write it again, or check that the copy is complete"),
    )
