"""A few rows of a table from all over the file, and how many rows it has, read in a fraction of a second.

Small text files are read whole. Of large ones blocks at even distances are read; a row that a block tears is skipped.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from stoker.core.errors import DataError
from stoker.data.encodings import encoding_of_head
from stoker.data.files import regular_file
from stoker.data.json_lines import parse_object
from stoker.data.table import MAX_FIELD_CHARS, Table, compose_name, read_table, require_columns, table_suffix

WHOLE_BELOW_BYTES = 4 << 20
_NUM_BLOCKS = 20
_BLOCK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Sample:
    """`table`: some rows; `total`: rows of the file; `exact`: whether that is counted, not estimated;
    `values`: rows of each value of the column asked for; `longest_bytes`: UTF-8 bytes of the longest text of the
    whole file, None where only a part was read."""

    table: Table
    total: int
    exact: bool
    values: dict[str, int]
    longest_bytes: int | None = None


def sample_table(path: Path, wanted: tuple[str, ...], *, count: int, encoding: str | None, tally: str | None) -> Sample:
    """About `count` rows of the `wanted` columns of `path`; `tally`: a column whose values are counted.

    Raises DataError as read_table does, rows inside large text files apart.
    """
    file = regular_file(path)
    suffix = table_suffix(path)
    if suffix == ".parquet":
        return _sample_parquet(file, wanted, count, tally)
    if suffix == ".json" or file.stat().st_size <= WHOLE_BELOW_BYTES:
        table = read_table(path, wanted, encoding=encoding)
        return _sample_of_whole(table, count, tally)
    return _sample_text(file, wanted, count, encoding, tally, suffix)


def _sample_parquet(file: Path, wanted: tuple[str, ...], count: int, tally: str | None) -> Sample:
    from stoker.data.parquet import UNREADABLE, unreadable

    try:
        return _sample_groups(file, wanted, count, tally)
    except UNREADABLE as error:
        raise unreadable(file, error) from error


def _sample_groups(file: Path, wanted: tuple[str, ...], count: int, tally: str | None) -> Sample:
    from stoker.data.parquet import check_sizes, column_values, open_parquet, stored_names

    parquet = open_parquet(file)
    names = [compose_name(name) for name in parquet.schema_arrow.names]
    wanted = tuple(compose_name(name) for name in wanted)
    stored = dict(zip(wanted, stored_names(file, parquet, wanted), strict=True))
    check_sizes(file, parquet, list(stored.values()))
    groups, total = parquet.metadata.num_row_groups, int(parquet.metadata.num_rows)
    chosen = sorted({round(i * (groups - 1) / 3) for i in range(4)}) if groups else []
    read = parquet.read_row_groups(chosen, columns=list(stored.values()))
    pieces = _slices(read.num_rows, count)
    columns: dict[str, list[Any]] = {name: [] for name in stored}
    for name, stored_name in stored.items():
        for start, length in pieces:  # slices, not `take`: that would load pyarrow.compute, and pandas
            for part in read.column(stored_name).slice(start, length).chunks:
                columns[name].extend(column_values(part, file, start, name)[0])
    rows = [row for start, length in pieces for row in range(start + 1, start + length + 1)]
    table = Table(file=file, names=tuple(names), columns=columns, row_numbers=rows, encoding="binary")
    values: dict[str, int] = {}
    if tally is not None and total:
        column = parquet.read(columns=[stored[compose_name(tally)]]).column(0)
        for part in column.chunks:
            for value in column_values(part, file, 0, tally)[0]:
                values[str(value)] = values.get(str(value), 0) + 1
    longest = max((_longest_bytes(read.column(name)) for name in stored.values()), default=0)
    return Sample(table, total, True, values, longest if len(chosen) == groups else None)


def _slices(total: int, count: int) -> list[tuple[int, int]]:
    """(start, length) of blocks that hold `count` rows together, spread evenly."""
    if total <= count:
        return [(0, total)] if total else []
    length = max(count // _NUM_BLOCKS, 1)
    blocks = min(_NUM_BLOCKS, count)
    return [(i * (total - length) // max(blocks - 1, 1), length) for i in range(blocks)]


def _longest_bytes(column: Any) -> int:
    """UTF-8 bytes of the longest text of a dictionary-encoded column, 0 for other columns."""
    longest = 0
    for part in column.chunks:
        words = getattr(part, "dictionary", None)
        if words is None or not len(words):
            continue
        wide = str(words.type).startswith("large")
        if not wide and str(words.type) != "string":
            continue
        starts = memoryview(words.buffers()[1]).cast("B").cast("q" if wide else "i")
        first = words.offset
        edges = starts[first : first + len(words) + 1].tolist()
        longest = max(longest, max(b - a for a, b in pairwise(edges)))
    return longest


def _sample_text(
    file: Path, wanted: tuple[str, ...], count: int, encoding: str | None, tally: str | None, suffix: str
) -> Sample:
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(_BLOCK_BYTES)
        codec = encoding_of_head(head, encoding)
        if codec.startswith(("utf-16", "utf-32")):  # lines cannot be found by a byte
            table = read_table(file, wanted, encoding=encoding)
            return _sample_of_whole(table, count, tally)
        blocks = [head]
        for i in range(1, _NUM_BLOCKS):
            stream.seek(i * (size - _BLOCK_BYTES) // (_NUM_BLOCKS - 1))
            stream.readline(_BLOCK_BYTES)
            blocks.append(stream.read(_BLOCK_BYTES))
    table, seen_bytes = _parse_blocks(file, blocks, wanted, codec, suffix)
    if not table.num_rows:
        table = read_table(file, wanted, encoding=encoding)
        return _sample_of_whole(table, count, tally)
    total = round(size / (seen_bytes / table.num_rows))
    return Sample(_rows_of(table, _evenly(table.num_rows, count)), total, False, _tally(table, tally))


def _parse_blocks(
    file: Path, blocks: list[bytes], wanted: tuple[str, ...], codec: str, suffix: str
) -> tuple[Table, int]:
    """(the whole rows of the blocks, their bytes)."""
    wanted = tuple(compose_name(name) for name in wanted)
    columns: dict[str, list[Any]] = {name: [] for name in wanted}
    header: list[str] = []
    rows, seen = 0, 0
    for block in blocks:
        whole = block[: block.rfind(b"\n") + 1]
        text = whole.decode(codec, errors="ignore")  # only a torn character at an edge can be lost: samples, not data
        for cells in _records(text, suffix, header, file):
            for name in wanted:
                columns[name].append(cells.get(name))
            rows += 1
        seen += len(whole)
    names = header or list(columns)
    require_columns(file, wanted, names)
    table = Table(file=file, names=tuple(names), columns=columns, row_numbers=list(range(1, rows + 1)), encoding=codec)
    return table, seen


def _records(text: str, suffix: str, header: list[str], file: Path) -> Iterator[dict[str, Any]]:
    if suffix in (".jsonl", ".ndjson"):
        for line in text.split("\n"):
            try:
                if line.strip():
                    value = {compose_name(k): v for k, v in parse_object(line, str(file)).items()}
                    header.extend(k for k in value if k not in header)
                    yield value
            except DataError:
                continue
        return
    csv.field_size_limit(MAX_FIELD_CHARS)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="," if suffix == ".csv" else "\t")
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            continue
        if not header:
            header.extend(compose_name(cell) for cell in row)
        elif row and len(row) == len(header):
            yield dict(zip(header, row, strict=True))


def _sample_of_whole(table: Table, count: int, tally: str | None) -> Sample:
    texts = (value for column in table.columns.values() for value in column if isinstance(value, str))
    longest = max((len(text.encode("utf-8", "surrogatepass")) for text in texts), default=0)
    chosen = _evenly(table.num_rows, count)
    return Sample(_rows_of(table, chosen), table.num_rows, True, _tally(table, tally), longest)


def _evenly(total: int, count: int) -> list[int]:
    return list(range(total)) if total <= count else [int(i * total / count) for i in range(count)]


def _rows_of(table: Table, chosen: list[int]) -> Table:
    return Table(
        file=table.file,
        names=table.names,
        columns={name: [column[i] for i in chosen] for name, column in table.columns.items()},
        row_numbers=[table.row_numbers[i] for i in chosen],
        encoding=table.encoding,
    )


def _tally(table: Table, column: str | None) -> dict[str, int]:
    counts: dict[str, int] = {}
    for value in table.columns[compose_name(column)] if column else ():
        counts[str(value)] = counts.get(str(value), 0) + 1
    return counts
