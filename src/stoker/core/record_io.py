"""Reading record.jsonl: every complete line counts; a torn line is what a kill leaves and is dropped.

Torn lines may stand last, or before the line with which a later start goes on (a `resume` event or a header).
"""

import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.core.codec import decode, loads
from stoker.core.errors import RecordError
from stoker.core.i18n import _
from stoker.core.record import (
    RECORD_SCHEMA_VERSION,
    EvalLine,
    EventLine,
    RunRecord,
    SaveLine,
    StepLine,
)

RESUME_EVENT = "resume"
_KINDS: dict[str, type] = {"step": StepLine, "eval": EvalLine, "save": SaveLine, "event": EventLine}
_TAIL_BYTES = 1 << 20


def read_record(path: Path | str) -> RunRecord:
    """The record of a run folder (or of a record.jsonl). Raises RecordError ST601 to ST603.

    After a resume the steps past the checkpoint stand twice; the later line of a step wins.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "record.jsonl"
    if not file.is_file():
        raise RecordError(
            "ST601",
            _("there is no record.jsonl"),
            place=str(path),
            fix=_("name the folder that `stoker run --out` wrote"),
        )
    header: dict[str, Any] | None = None
    end: dict[str, Any] | None = None
    lines: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
    for row in _rows(file):
        kind = row.pop("kind")
        if kind == "header":
            header, end = header or row, None
        elif kind == "end":
            end = row
        else:
            lines[kind].append(row["line"])
            end = None  # a run that goes on has not ended
    if header is None:
        raise RecordError(
            "ST603",
            _("this is no record of a run: it has no header line"),
            place=str(file),
            fix=_("name the folder that `stoker run --out` wrote"),
        )
    if int(header.get("schema_version", 0)) > RECORD_SCHEMA_VERSION:
        raise RecordError(
            "ST603",
            _("the record was written by a newer stoker"),
            place=str(file),
            fix=_("use the stoker that wrote it"),
        )
    return RunRecord(
        path=str(file),
        header=header,
        end=end,
        steps=_last_of(lines["step"]),
        evals=_last_of(lines["eval"]),
        saves=_last_of(lines["save"]),
        events=tuple(lines["event"]),
    )


def _last_of(rows: list[Any]) -> tuple[Any, ...]:
    """One row a step, the last written, in order of steps."""
    by_step = {row.step: row for row in rows}
    return tuple(by_step[step] for step in sorted(by_step))


def _rows(file: Path) -> typing.Iterator[dict[str, Any]]:
    """Each good line: header and end as they are, the others decoded under `line`. Raises RecordError ST602."""
    torn: tuple[int, Exception] | None = None
    for number, text in enumerate(file.read_text(encoding="utf-8", errors="replace").split("\n"), 1):
        if not text.strip():
            continue
        try:
            row = loads(text)
            kind = row["kind"]
            known = kind in _KINDS
            if known:
                row = {"kind": kind, "line": _decode_line(_KINDS[kind], row)}
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            torn = torn or (number, error)
            continue
        goes_on = kind == "header" or (kind == "event" and row["line"].name == RESUME_EVENT)
        if torn is not None and not goes_on:
            raise _bad_line(file, *torn) from torn[1]
        torn = None
        if known or kind in ("header", "end"):
            yield row


def _bad_line(file: Path, number: int, error: Exception) -> RecordError:
    return RecordError(
        "ST602",
        _("line is not a record line: {error}").format(error=error),
        place=f"{file}:{number}",
        fix=_("restore the file from a copy, or remove this line"),
    )


def _decode_line(kind: type, row: dict[str, Any]) -> Any:
    """`row` as `kind`. What JSON holds as null in a number's place was NaN or infinite (codec.encode)."""
    row = {name: value for name, value in row.items() if name != "kind"}
    for name, hint in typing.get_type_hints(kind).items():
        if hint is float and row.get(name, 0.0) is None:
            row[name] = math.nan
        elif hint == Mapping[str, float] and isinstance(row.get(name), dict):
            row[name] = {key: math.nan if value is None else value for key, value in row[name].items()}
    return decode(kind, row)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordState:
    """How a record stands: `elapsed_s` of its last timed line; `torn`: it does not end in a newline."""

    has_header: bool = False
    torn: bool = False
    elapsed_s: float = 0.0


def scan_record(file: Path) -> RecordState:
    """State of a record from its first line and its last MiB: never raises for what a kill left there."""
    if not file.is_file() or file.stat().st_size == 0:
        return RecordState()
    with file.open("rb") as stream:
        has_header = any(row.get("kind") == "header" for row in map(_loads_or_empty, _first_lines(stream)))
        size = stream.seek(0, 2)
        stream.seek(max(0, size - _TAIL_BYTES))
        tail = stream.read()
    elapsed = 0.0
    for line in reversed(tail.split(b"\n")):
        value = _loads_or_empty(line).get("elapsed_s")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            elapsed = float(value)
            break
    return RecordState(has_header=has_header, torn=not tail.endswith(b"\n"), elapsed_s=elapsed)


def _first_lines(stream: typing.BinaryIO) -> list[bytes]:
    """The first lines that are not torn or empty: the header is the first, save where a kill tore an earlier try."""
    lines: list[bytes] = []
    for line in stream:
        lines.append(line)
        if _loads_or_empty(line) or len(lines) >= 100:
            break
    return lines


def _loads_or_empty(line: bytes) -> dict[str, Any]:
    try:
        row = loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}
