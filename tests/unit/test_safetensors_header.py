"""Proves that a hostile or broken safetensors header is refused before a tensor is used, and honest ones are not."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.core.safetensors_header import MAX_TENSORS, parse_header, read_header


def _file(tmp_path: Path, header: Any, data: bytes = b"", *, raw: bytes | None = None, size: int | None = None) -> Path:
    text = raw if raw is not None else json.dumps(header).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes((len(text) if size is None else size).to_bytes(8, "little") + text + data)
    return path


def _row(begin: int, end: int, shape: Any = None, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


def test_honest_file_is_read_with_places_from_the_files_start(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "b": _row(8, 12),
        "a": _row(0, 8, [2, 1]),
        "empty": _row(12, 12, [0, 3]),
    }
    entries = read_header(_file(tmp_path, header, bytes(12)))
    start = 8 + len(json.dumps(header))
    assert (entries["a"].begin, entries["a"].end, entries["a"].shape) == (start, start + 8, (2, 1))
    assert set(entries) == {"a", "b", "empty"} and entries["b"].end == start + 12


BAD: dict[str, Any] = {
    "overlap": {"a": _row(0, 8), "b": _row(4, 12)},
    "hole": {"a": _row(0, 4), "b": _row(8, 12)},
    "not from zero": {"a": _row(4, 12)},
    "beyond the file": {"a": _row(0, 400)},
    "short of the file": {"a": _row(0, 8)},
    "backwards": {"a": _row(12, 0, [0])},
    "size differs": {"a": _row(0, 12, [2])},
    "overflowing shape": {"a": _row(0, 12, [2**62, 2**62])},
    "negative shape": {"a": _row(0, 12, [-3, -1])},
    "float shape": {"a": _row(0, 12, [3.0])},
    "bool shape": {"a": _row(0, 12, [True, 3])},
    "unknown dtype": {"a": _row(0, 12, dtype="F128")},
    "dtype no word": {"a": _row(0, 12, dtype=["F32"])},
    "more keys": {"a": {**_row(0, 12), "code": "x"}},
    "fewer keys": {"a": {"dtype": "F32", "shape": [3]}},
    "row no mapping": {"a": [0, 12]},
    "offsets no pair": {"a": {**_row(0, 12), "data_offsets": [0, 4, 12]}},
    "metadata no words": {"__metadata__": {"a": 1}, "a": _row(0, 12)},
    "path": {"../../a": _row(0, 12)},
    "absolute path": {"/etc/a": _row(0, 12)},
    "windows path": {"c:\\a": _row(0, 12)},
    "markup": {"<script>": _row(0, 12)},
    "control characters": {"a\x1b[2J": _row(0, 12)},
    "empty name": {"": _row(0, 12)},
    "endless name": {"a" * 5000: _row(0, 12)},
}


@pytest.mark.parametrize("name", BAD)
def test_bad_headers_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError):
        read_header(_file(tmp_path, BAD[name], bytes(12)))


def test_duplicate_names_are_refused(tmp_path: Path) -> None:
    row = json.dumps(_row(0, 12))
    with pytest.raises(ValueError, match="duplicate"):
        read_header(_file(tmp_path, None, bytes(12), raw=f'{{"a": {row}, "a": {row}}}'.encode()))


@pytest.mark.parametrize("raw", [b"[]", b"{", b'{"a": NaN}', b"\xff\xfe{}", b'{"a":' * 100_000, b" {}"])
def test_text_that_is_no_object_is_refused(tmp_path: Path, raw: bytes) -> None:
    with pytest.raises(ValueError):
        read_header(_file(tmp_path, None, raw=raw))


@pytest.mark.parametrize("size", [0, 1, 10**6, 2**63, 2**64 - 1])
def test_sizes_that_lie_are_refused_without_reading(tmp_path: Path, size: int) -> None:
    with pytest.raises(ValueError, match="header of"):
        read_header(_file(tmp_path, {}, size=size))


def test_short_files_and_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"\x02\0")
    with pytest.raises(ValueError, match="too few"):
        read_header(tmp_path / "short")


def test_a_million_empty_tensors_are_refused_quickly() -> None:
    row = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    text = ("{" + ",".join(f'"t{i}":{row}' for i in range(20_000)) + "}").encode()
    with pytest.raises(ValueError, match="empty"):
        parse_header(text, 8 + len(text))
    many = ("{" + ",".join(f'"{i}":0' for i in range(MAX_TENSORS + 1)) + "}").encode()
    with pytest.raises(ValueError, match="tensors"):
        parse_header(many, 8 + len(many))


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_noise_is_refused_with_a_reason_never_another_error(noise: bytes) -> None:
    with pytest.raises(ValueError):
        parse_header(b'{"a"' + noise, 8 + 4 + len(noise))
