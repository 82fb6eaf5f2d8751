"""Writes a run's record.jsonl: one JSON object a line, each line one write, nothing ever rewritten.

A kill leaves at most one torn line; the next writer starts on a fresh line after it and says `resume`, and
`core.record_io` reads both. Seconds count from the run's first start, so they go on after a resume.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stoker.core.codec import dumps, encode
from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.core.record import RECORD_SCHEMA_VERSION, EvalLine, EventLine, RunStatus, SaveLine, StepLine
from stoker.core.record_io import RESUME_EVENT, scan_record

RECORD_NAME = "record.jsonl"
_KINDS: dict[type, str] = {StepLine: "step", EvalLine: "eval", SaveLine: "save", EventLine: "event"}


class RecordWriter:
    """Appends to `run_dir`/record.jsonl. Usable as a context manager; closing twice is fine.

    The first line that cannot be written raises RunError ST455; later ones are tried and counted in
    `dropped_lines`, so that the way out of a full disk (save, end) is not itself cut short.
    """

    def __init__(
        self,
        run_dir: Path | str,
        *,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self.path = Path(run_dir) / RECORD_NAME
        self.dropped_lines = 0
        self._clock, self._write = clock, write
        self._broken = False
        past = scan_record(self.path)
        self.has_header = past.has_header
        self._torn = past.torn
        self._start = clock() - past.elapsed_s
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666)
        except OSError as error:
            raise self._problem(error) from error

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run's first start, the time between a stop and its resume left out."""
        return self._clock() - self._start

    def header(self, fields: Mapping[str, Any]) -> None:
        """The first line of a new record; in a record that has one, an event `resume` with the same fields."""
        if self.has_header:
            self.event(RESUME_EVENT, _("resumed"), data=fields)
        else:
            self._line({"kind": "header", "schema_version": RECORD_SCHEMA_VERSION, **fields})
            self.has_header = True
        self.sync()

    def append(self, line: StepLine | EvalLine | SaveLine | EventLine) -> None:
        """One line of the record."""
        self._line({"kind": _KINDS[type(line)], **encode(line)})

    def event(self, name: str, message: str, *, code: str = "", data: Mapping[str, Any] | None = None) -> None:
        """One event, timed now."""
        self.append(
            EventLine(name=name, message=message, elapsed_s=self.elapsed_s, code=code, data=dict(data or {})),
        )

    def end(self, status: RunStatus, fields: Mapping[str, Any] | None = None) -> None:
        """The last line: how it ended, with any further fields; then everything to the disk."""
        self._line({"kind": "end", "status": status, "elapsed_s": self.elapsed_s, **(fields or {})})
        self.sync()

    def sync(self) -> None:
        """Everything written so far to the disk (call at each save). A failing disk is told once, see the class."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _line(self, row: Mapping[str, Any]) -> None:
        text = ("\n" if self._torn else "") + dumps(row) + "\n"
        data = text.encode("utf-8", errors="replace")
        written = 0
        try:
            while written < len(data):  # the kernel may take less than all: a full disk shows on the next call
                count = self._write(self._fd, data[written:])
                written += count
                self._torn = not data[:written].endswith(b"\n")
        except OSError as error:
            self.dropped_lines += 1
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if self._broken:
            return
        self._broken = True
        raise self._problem(error) from error

    def _problem(self, error: OSError) -> RunError:
        return RunError(
            "ST455",
            _("the record cannot be written: {error}").format(error=error.strerror or error),
            place=str(self.path),
            fix=_("free disk space or mend permissions there, then start the same command again: it resumes"),
        )
