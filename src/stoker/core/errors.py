"""The exception tree: every error names the place, what is wrong, and what to do next, under a stable code.

    StokerError
    ├── BadInput              exit 2: the user's file, flag, data, model or folder
    │   ├── JobFileError      ST0xx
    │   ├── DataError         ST1xx
    │   ├── ModelError        ST2xx
    │   ├── PlanningError     ST3xx   hardware names, prices, plans
    │   ├── RunError          ST4xx   run folders, checkpoints, training
    │   ├── EnvironmentProblem ST5xx  a missing optional part, a missing permission
    │   └── RecordError       ST6xx   records and reports
    └── InternalError         exit 1: a bug of ours

What cannot be done although the input is sound (no GPU fits) is a value (`Rejection`), not an exception.
"""

_MOST_CHARS = 1500


def _one_line(text: str) -> str:
    """`text` as one line of bounded length: names that the user gave may hold line breaks, controls, or 100 kB."""
    line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return line if len(line) <= _MOST_CHARS else line[: _MOST_CHARS // 2] + " ... " + line[-_MOST_CHARS // 2 :]


class StokerError(Exception):
    """An error with a code, a place, a problem and a fix, each already in the user's language.

    `code`: stable, like ST012 (taught by `stoker explain`). `place`: file, line, key or device; may be empty.
    `problem`: what is wrong, one sentence. `fix`: what to do next, one sentence.
    """

    exit_code = 1

    def __init__(self, code: str, problem: str, *, place: str = "", fix: str = "") -> None:
        self.code = code
        self.place = place
        self.problem = problem
        self.fix = fix
        super().__init__(str(self))

    def __str__(self) -> str:
        place, problem, fix = _one_line(self.place), _one_line(self.problem), _one_line(self.fix)
        head = f"{place}: {problem}" if place else problem
        return f"[{self.code}] {head}" + (f"\n  -> {fix}" if fix else "")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.code, self.problem, self.place, self.fix))


def _rebuild(kind: type[StokerError], code: str, problem: str, place: str, fix: str) -> StokerError:
    return kind(code, problem, place=place, fix=fix)


class BadInput(StokerError):
    """Something the user gave is wrong."""

    exit_code = 2


class JobFileError(BadInput):
    """The job file, an override or a flag."""


class DataError(BadInput):
    """Training or evaluation data."""


class ModelError(BadInput):
    """A model's config, weights or tokenizer."""


class PlanningError(BadInput):
    """A hardware name, a price snapshot, or a plan file."""


class RunError(BadInput):
    """A run folder, a checkpoint, or training itself."""


class EnvironmentProblem(BadInput):
    """A part of this machine or installation that the command needs and lacks."""


class RecordError(BadInput):
    """A record or report that cannot be read."""


class InternalError(StokerError):
    """A bug of stoker's own."""
