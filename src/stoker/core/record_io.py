"""Reading record.jsonl: every complete line counts, a torn last line is what a kill leaves and is dropped."""

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

_KINDS: dict[str, type] = {"step": StepLine, "eval": EvalLine, "save": SaveLine, "event": EventLine}


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
    texts = file.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            row = loads(text)
            kind = row.pop("kind")
            if kind == "header":
                header, end = header or row, None
            elif kind == "end":
                end = row
            elif kind in _KINDS:
                lines[kind].append(decode(_KINDS[kind], row))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            if number >= len(texts) - 1:
                continue  # the line that a kill tore
            raise RecordError(
                "ST602",
                _("line is not a record line: {error}").format(error=error),
                place=f"{file}:{number}",
                fix=_("restore the file from a copy, or remove this line"),
            ) from error
    if header is None or int(header.get("schema_version", 0)) > RECORD_SCHEMA_VERSION:
        raise RecordError(
            "ST603",
            _("the header is missing or of a newer stoker"),
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
