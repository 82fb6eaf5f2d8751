"""stdout is the answer, stderr the talk. Colour and width come from the terminal; NO_COLOR is honoured."""

import contextlib
import errno
import functools
import os
import sys
from typing import IO, TYPE_CHECKING, Any, cast

from stoker.core.codec import dumps

if TYPE_CHECKING:
    from rich.console import Console


@functools.cache
def answer() -> "Console":
    """The console of answers (stdout)."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty(), emoji=False, markup=False)


@functools.cache
def talk() -> "Console":
    """The console of talk: notices, progress, errors (stderr)."""
    from rich.console import Console

    return Console(file=cast(IO[str], _Unheard(sys.stderr)), highlight=False, emoji=False, markup=False, soft_wrap=True)


def print_answer(text: str) -> None:
    """Plain text to stdout; characters that the terminal's encoding lacks degrade, never raise."""
    _answer(text + "\n")


def print_json(value: Any) -> None:
    """One JSON document to stdout."""
    _answer(dumps(value, indent=2) + "\n")


class NobodyListens(Exception):
    """The answer's reader has gone (`stoker ... | head`, a closed terminal): the work is done, nothing is wrong."""


def _answer(text: str) -> None:
    try:
        _write(sys.stdout, text)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        raise NobodyListens from error  # as an OSError click would turn it into exit 1


def notice(text: str) -> None:
    """One line of talk to stderr; where nobody can hear it (a closed pipe or terminal) the work goes on."""
    _write(_Unheard(sys.stderr), text + "\n")


class _Unheard:
    """A stream whose reader may have gone: from the first failure on, what is written is lost in silence."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except (OSError, ValueError):
            self._give_up()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._give_up()

    def _give_up(self) -> None:
        """To the null device, so that what is still buffered does not fail again at the exit."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


def _write(stream: Any, text: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, errors="replace").decode(encoding))
    stream.flush()
