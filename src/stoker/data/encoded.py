"""A tokenised split on disk: memory-mapped Arrow, read sample by sample without a copy.

One record batch holds CHUNK samples: token ids (int32), and where the task needs them the loss mask, the segment of
each token (pairs), the target, and the row of the file, for error messages.
"""

import importlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stoker.core.errors import DataError
from stoker.core.i18n import _

CHUNK = 65_536  # samples of one record batch; all but the last are full, so a sample is found by division


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Flat views over one record batch; `starts` has one more entry than there are samples."""

    ids: Any
    starts: Any
    mask: Any
    types: Any
    targets: Any
    rows: Any
    uncut: Any


class EncodedSplit:
    """The samples of one split, tokenised and cut at the job's seq_len.

    `name`: train, eval or test. `num_samples`; `lengths`: tokens per sample (int64). `num_targets`: width of a
    multi-label target, 1 for a class index, 0 without labels. `data_file`: where the rows come from.
    Values are numpy views where numpy is installed, else memoryviews; neither may be written to.
    """

    def __init__(self, path: Path, *, name: str, data_file: str, num_targets: int) -> None:
        import pyarrow as pa

        self.path = path
        self.name = name
        self.data_file = data_file
        self.num_targets = num_targets
        self._source = pa.memory_map(str(path))
        reader = pa.ipc.open_file(self._source)
        self._chunks = [_views(reader.get_batch(i), num_targets) for i in range(reader.num_record_batches)]
        self.num_samples = sum(len(chunk.rows) for chunk in self._chunks)
        self.lengths = _lengths(self._chunks)
        self.num_tokens = sum(int(chunk.starts[len(chunk.rows)]) for chunk in self._chunks)

    def __len__(self) -> int:
        return self.num_samples

    def token_ids(self, i: int) -> Sequence[int]:
        """Token ids of sample `i`, special tokens included (int32 view, no copy)."""
        chunk, where = self._find(i)
        view: Sequence[int] = chunk.ids[int(chunk.starts[where]) : int(chunk.starts[where + 1])]
        return view

    def loss_mask(self, i: int) -> Sequence[int]:
        """1 for each token of sample `i` that the loss counts as a target (causal_lm), else 0."""
        return self._per_token(i, "mask", 1)

    def type_ids(self, i: int) -> Sequence[int]:
        """Segment of each token of sample `i`: 0, and 1 for the second text of a pair."""
        return self._per_token(i, "types", 0)

    @property
    def has_type_ids(self) -> bool:
        return any(chunk.types is not None for chunk in self._chunks)

    def target(self, i: int) -> int | list[int]:
        """Class index of sample `i` (single_label), or its list of 0/1 in the order of the labels (multi_label)."""
        chunk, where = self._find(i)
        if chunk.targets is None:
            raise IndexError(f"{self.name} has no targets")
        if self.num_targets == 1 and not isinstance(chunk.targets, _Rows):
            return int(chunk.targets[where])
        return [int(value) for value in chunk.targets[where]]

    def row_number(self, i: int) -> int:
        """Row (parquet, json) or line (csv, tsv, jsonl) of the data file that sample `i` came from, from 1."""
        chunk, where = self._find(i)
        return int(chunk.rows[where])

    def uncut_length(self, i: int) -> int:
        """Tokens of sample `i` before the cut at seq_len."""
        chunk, where = self._find(i)
        return int(chunk.uncut[where])

    def place(self, i: int) -> str:
        """`file:row` of sample `i`, for errors."""
        return f"{self.data_file}:{self.row_number(i)}"

    def _per_token(self, i: int, field: str, default: int) -> Sequence[int]:
        chunk, where = self._find(i)
        first, last = int(chunk.starts[where]), int(chunk.starts[where + 1])
        values = getattr(chunk, field)
        if values is None:
            return bytes([default]) * (last - first)
        view: Sequence[int] = values[first:last]
        return view

    def _find(self, i: int) -> tuple[_Chunk, int]:
        if not 0 <= i < self.num_samples:
            raise IndexError(i)
        return self._chunks[i // CHUNK], i % CHUNK


class _Rows:
    """A flat view read as rows of `width`."""

    def __init__(self, flat: Any, width: int) -> None:
        self.flat, self.width = flat, width

    def __getitem__(self, row: int) -> Any:
        return self.flat[row * self.width : (row + 1) * self.width]


def _views(batch: Any, num_targets: int) -> _Chunk:
    ids = batch.column("ids")
    names = batch.schema.names
    targets = None
    if "target" in names:
        column = batch.column("target")
        wide = str(column.type).startswith("fixed_size_list")
        targets = _Rows(_flat(column.values, "b"), num_targets) if wide else _flat(column, "i")
    return _Chunk(
        ids=_flat(ids.values, "i"),
        starts=_flat_offsets(ids),
        mask=_flat(batch.column("mask").values, "B") if "mask" in names else None,
        types=_flat(batch.column("types").values, "B") if "types" in names else None,
        targets=targets,
        rows=_flat(batch.column("row"), "q"),
        uncut=_flat(batch.column("uncut"), "q"),
    )


def _flat_offsets(column: Any) -> Any:
    return _view(column.buffers()[1], "q", len(column) + 1)


def _flat(column: Any, code: Literal["i", "q", "b", "B"]) -> Any:
    return _view(column.buffers()[1], code, len(column))


_DTYPES = {"i": "int32", "q": "int64", "b": "int8", "B": "uint8"}


def _view(buffer: Any, code: Literal["i", "q", "b", "B"], length: int) -> Any:
    numpy = _numpy()
    if numpy is not None:
        if buffer is None:
            return numpy.empty(0, dtype=_DTYPES[code])
        return numpy.frombuffer(buffer, dtype=_DTYPES[code], count=length)
    if buffer is None:
        return memoryview(b"").cast(code)
    return memoryview(buffer).cast("B")[: length * array(code).itemsize].cast(code)


def _numpy() -> Any:
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None


def _lengths(chunks: Sequence[_Chunk]) -> Any:
    numpy = _numpy()
    if numpy is not None:
        parts = [numpy.diff(chunk.starts) for chunk in chunks]
        return numpy.concatenate(parts) if parts else numpy.empty(0, dtype="int64")
    out = array("q")
    for chunk in chunks:
        out.extend(chunk.starts[k + 1] - chunk.starts[k] for k in range(len(chunk.rows)))
    return out


class SplitWriter:
    """Writes samples in order into one Arrow file; `close` finishes it."""

    def __init__(self, path: Path, *, num_targets: int | None, wide: bool, masked: bool, typed: bool) -> None:
        import pyarrow as pa

        fields = [("ids", pa.large_list(pa.int32())), ("row", pa.int64()), ("uncut", pa.int64())]
        if masked:
            fields.append(("mask", pa.large_list(pa.uint8())))
        if typed:
            fields.append(("types", pa.large_list(pa.uint8())))
        if num_targets:
            fields.append(("target", pa.list_(pa.int8(), num_targets) if wide else pa.int32()))
        self._schema = pa.schema(fields)
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, self._schema)
        self._pending: dict[str, list[Any]] = {name: [] for name, _type in fields}

    def add(self, **values: Any) -> None:
        """One sample: ids, row, uncut, and what else the schema has (mask, types, target)."""
        for name, column in self._pending.items():
            column.append(values[name])
        if len(self._pending["row"]) == CHUNK:
            self._flush()

    def close(self) -> None:
        """Write what is pending and the file's end."""
        if self._pending["row"]:
            self._flush()
        self._writer.close()
        self._sink.close()

    def _flush(self) -> None:
        import pyarrow as pa

        columns = [pa.array(self._pending[f.name], type=f.type) for f in self._schema]
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
        for column in self._pending.values():
            column.clear()


def require_samples(split: EncodedSplit, dropped: dict[str, int]) -> None:
    """Raises DataError ST130 when nothing is left of a split."""
    if split.num_samples:
        return
    why = ", ".join(f"{reason} {count}" for reason, count in dropped.items()) or _("no row")
    raise DataError(
        "ST130",
        _("no sample is left in {name} ({why})").format(name=split.name, why=why),
        place=split.data_file,
        fix=_("check the columns named under data, and the split"),
    )
