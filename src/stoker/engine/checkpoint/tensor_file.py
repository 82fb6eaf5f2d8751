"""Tensors to a safetensors file and back: streamed out one tensor at a time, read in by one pass that also hashes."""

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from stoker.core.safetensors_header import (
    ITEM_BYTES,
    TensorEntry,
    check_tensor_name,
    header_size,
    parse_header,
)
from stoker.engine.checkpoint.digest import CHUNK_BYTES, DigestPool, FileDigest

_DTYPES: dict[torch.dtype, str] = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint64: "U64", torch.uint32: "U32",
    torch.uint16: "U16", torch.uint8: "U8", torch.bool: "BOOL", torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2", torch.complex64: "C64",
}  # fmt: skip
_TORCH_DTYPES = {name: dtype for dtype, name in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class StreamedTensor:
    """A tensor that never stands whole: `parts()` yields its elements in order, on the CPU, a piece at a time."""

    dtype: torch.dtype
    shape: torch.Size
    parts: Callable[[], Iterator[torch.Tensor]]

    def numel(self) -> int:
        return self.shape.numel()

    def element_size(self) -> int:
        return self.dtype.itemsize


AnyTensor = torch.Tensor | StreamedTensor


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A file to be written: its header, the order of its tensors, and its exact size in bytes."""

    header: bytes
    names: tuple[str, ...]
    num_bytes: int


def lay_out(tensors: Mapping[str, AnyTensor]) -> TensorFile:
    """Header and exact size for `tensors`, widest dtypes first so that each is aligned. Raises ValueError."""
    for name, tensor in tensors.items():
        check_tensor_name(name)
        if isinstance(tensor, StreamedTensor):
            continue
        if tensor.dtype not in _DTYPES or tensor.layout is not torch.strided or tensor.is_quantized:
            raise ValueError(f"{name}: a {tensor.layout} tensor of {tensor.dtype} has no safetensors form")
        if tensor.device.type == "meta":
            raise ValueError(f"{name}: a meta tensor has no values")
    names = tuple(sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)))
    rows, place = {}, 0
    for name in names:
        tensor = tensors[name]
        size = tensor.numel() * tensor.element_size()
        rows[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [place, place + size],
        }
        place += size
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return TensorFile(struct.pack("<Q", len(text)) + text, names, 8 + len(text) + place)


def stream_out(layout: TensorFile, tensors: Mapping[str, AnyTensor]) -> Iterator[memoryview]:
    """The file's bytes in order; at most one tensor at a time is copied from an accelerator."""
    yield memoryview(layout.header)
    for name in layout.names:
        tensor = tensors[name]
        if not tensor.numel():
            continue
        if isinstance(tensor, StreamedTensor):
            yield from _stream(name, tensor)
        else:
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            yield flat.view(torch.uint8).numpy().data


def _stream(name: str, tensor: StreamedTensor) -> Iterator[memoryview]:
    """The parts, counted: a file whose tensors are shifted would pass its own digest. Raises RuntimeError."""
    left = tensor.numel()
    for part in tensor.parts():
        left -= part.numel()
        if part.dtype != tensor.dtype or left < 0:
            break
        yield part.contiguous().reshape(-1).view(torch.uint8).numpy().data
    if left:
        raise RuntimeError(f"{name}: its parts are not its {tensor.numel()} elements")


def read_tensors(path: Path, num_bytes: int, digest: str) -> dict[str, torch.Tensor]:
    """Tensors of the file on the CPU, all or none: size, digest and header are checked before any is handed out.

    The tensors share one buffer of the file's size. Raises ValueError with the reason, OSError.
    """
    buffer = torch.empty(num_bytes, dtype=torch.uint8)
    view = buffer.numpy().data
    with path.open("rb", buffering=0) as stream, DigestPool(num_bytes) as pool:
        hashed, place = FileDigest(pool), 0
        while place < num_bytes:
            count = stream.readinto(view[place : place + CHUNK_BYTES])
            if not count:
                raise ValueError(f"the file ends at byte {place} of {num_bytes}")
            hashed.update(view[place : place + count])
            place += count
        if stream.read(1):
            raise ValueError(f"the file is longer than {num_bytes} bytes")
        if hashed.hexdigest() != digest:
            raise ValueError("the digest differs: the bytes changed since they were saved")
    size = header_size(bytes(view[:8]), num_bytes)
    entries = parse_header(bytes(view[8 : 8 + size]), num_bytes)
    return {name: _tensor(buffer, entry) for name, entry in entries.items()}


def map_tensors(path: Path, num_bytes: int) -> dict[str, torch.Tensor]:
    """Tensors of a file that was verified just now, as pages of it: a state larger than free memory can be read so.

    Writing to them does not reach the file. Raises ValueError, OSError.
    """
    if path.stat().st_size != num_bytes:
        raise ValueError(f"the file has not the {num_bytes} bytes that were verified")
    buffer = torch.from_numpy(np.memmap(path, dtype=np.uint8, mode="c"))
    size = header_size(bytes(buffer[:8].tolist()), num_bytes)
    entries = parse_header(bytes(buffer[8 : 8 + size].numpy().data), num_bytes)
    return {name: _tensor(buffer, entry) for name, entry in entries.items()}


def _tensor(buffer: torch.Tensor, entry: TensorEntry) -> torch.Tensor:
    part, dtype = buffer[entry.begin : entry.end], _TORCH_DTYPES[entry.dtype]
    if math.prod(entry.shape) == 0:
        return torch.empty(entry.shape, dtype=dtype)
    if entry.begin % ITEM_BYTES[entry.dtype]:
        part = part.clone()
    return part.view(dtype).reshape(entry.shape)
