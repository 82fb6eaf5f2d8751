"""The header of a safetensors file, checked before a byte of its tensors is used. Stdlib only, offsets in bytes.

The format (github.com/huggingface/safetensors, README "Format"): 8 bytes little-endian header size, a JSON object of
name -> {dtype, shape, data_offsets}, then the tensors without holes. Common readers accept duplicate names,
path-like or HTML names and a million empty tensors; here each is refused, as the files come from strangers too.
"""

import math
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.core.codec import loads

ITEM_BYTES: Mapping[str, int] = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2,
    "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "C64": 8,
}  # fmt: skip
MAX_HEADER_BYTES = 100_000_000  # the reference reader's own limit
MAX_TENSORS = 500_000  # the largest open mixture-of-experts checkpoints hold about 100,000
MAX_EMPTY_TENSORS = 10_000
_MAX_NAME = 1024
_MAX_DIMS = 32
_FORBIDDEN = frozenset('/\\<>"')


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor: `begin` and `end` count from the file's start."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Entries of the file at `path`, in file order. Raises ValueError with the reason, OSError."""
    with path.open("rb") as stream:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise ValueError("not a regular file")
        head = stream.read(8)
        size = header_size(head, info.st_size)
        return parse_header(stream.read(size), info.st_size)


def header_size(head: bytes, file_bytes: int) -> int:
    """Bytes of the JSON header, from the file's first 8 bytes. Raises ValueError."""
    if len(head) < 8:
        raise ValueError(f"{file_bytes} bytes are too few for a safetensors file")
    size: int = struct.unpack("<Q", head[:8])[0]
    if size > MAX_HEADER_BYTES or size < 2 or 8 + size > file_bytes:
        raise ValueError(f"a header of {size} bytes in a file of {file_bytes}")
    return size


def parse_header(text: bytes, file_bytes: int) -> dict[str, TensorEntry]:
    """Entries of the header `text` (the JSON alone) of a file of `file_bytes`. Raises ValueError."""
    if text[:1] != b"{":
        raise ValueError("the header is not a JSON object")
    try:
        rows = loads(text.decode("utf-8"))
    except RecursionError:
        raise ValueError("the header nests too deep") from None
    metadata = rows.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("__metadata__ is not a mapping of words")
    if len(rows) > MAX_TENSORS:
        raise ValueError(f"{len(rows)} tensors")
    entries = sorted(
        (_entry(name, row, 8 + len(text)) for name, row in rows.items()), key=lambda entry: (entry.begin, entry.end)
    )
    if sum(entry.begin == entry.end for entry in entries) > MAX_EMPTY_TENSORS:
        raise ValueError("thousands of empty tensors")
    place = 8 + len(text)
    for entry in entries:
        if entry.begin != place:
            raise ValueError(f"{entry.name!r:.80}: tensors overlap or leave a hole at byte {place}")
        place = entry.end
    if place != file_bytes:
        raise ValueError(f"the file has {file_bytes} bytes, its header speaks of {place}")
    return {entry.name: entry for entry in entries}


def check_tensor_name(name: str) -> None:
    """Raises ValueError for a name that is empty, endless, path-like, or holds control or markup characters."""
    if not name or len(name) > _MAX_NAME:
        raise ValueError(f"a tensor name of {len(name)} characters")
    if (
        ".." in name
        or name.startswith(("~", "__metadata__"))
        or not name.isprintable()
        or not _FORBIDDEN.isdisjoint(name)
    ):
        raise ValueError(f"tensor name {name!r:.80}")


def _entry(name: str, row: Any, start: int) -> TensorEntry:
    check_tensor_name(name)
    if not isinstance(row, dict) or set(row) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name!r:.80}: dtype, shape and data_offsets are expected")
    dtype, shape, offsets = row["dtype"], row["shape"], row["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise ValueError(f"{name!r:.80}: unknown dtype {dtype!r:.40}")
    if not _naturals(shape) or len(shape) > _MAX_DIMS or not _naturals(offsets) or len(offsets) != 2:
        raise ValueError(f"{name!r:.80}: bad shape or offsets")
    if offsets[1] - offsets[0] != math.prod(shape) * ITEM_BYTES[dtype]:
        raise ValueError(f"{name!r:.80}: {offsets[1] - offsets[0]} bytes do not hold {shape} of {dtype}")
    return TensorEntry(name, dtype, tuple(shape), start + offsets[0], start + offsets[1])


def _naturals(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)
