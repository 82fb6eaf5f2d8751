"""stdout is the answer, stderr the talk. Colour and width come from the terminal; NO_COLOR is honoured."""

import codecs
import contextlib
import errno
import functools
import json
import os
import re
import sys
from typing import IO, TYPE_CHECKING, Any, cast

from stoker.core.codec import dumps
from stoker.core.errors import EnvironmentProblem
from stoker.core.i18n import _

if TYPE_CHECKING:
    from rich.console import Console


# what could move the cursor or turn the direction of a line: C0 and C1 controls, DEL, bidirectional marks
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


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
    """One JSON document to stdout: UTF-8, or plain ASCII with escapes where the terminal's encoding is another."""
    text = dumps(value, indent=2)
    if codecs.lookup(_encoding(sys.stdout)).name != "utf-8":
        text = "".join(char if char.isascii() else _json_escape(char) for char in text)
    _answer(text + "\n")


class NobodyListens(Exception):
    """The answer's reader has gone (`stoker ... | head`, a closed terminal): the work is done, nothing is wrong."""


def _answer(text: str) -> None:
    if sys.stdout is None:  # closed by the caller: `stoker ... >&-`
        raise NobodyListens
    try:
        _write(sys.stdout, text)
    except OSError as error:
        discard(sys.stdout)
        if error.errno in (errno.EPIPE, errno.EIO):
            raise NobodyListens from error  # as an OSError click would turn it into exit 1
        raise EnvironmentProblem(
            "ST502",
            _("the answer cannot be written: {error}").format(error=error.strerror or error),
            place="stdout",
            fix=_("make room there, or send the output elsewhere"),
        ) from error


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
        discard(self._stream)


def discard(stream: Any) -> None:
    """Turn `stream` to the null device, so that what is still buffered does not fail again at the exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _write(stream: Any, text: str) -> None:
    encoding = _encoding(stream)
    safe = _STEERING.sub(lambda found: _json_escape(found[0]), text)
    stream.write(safe.encode(encoding, errors="replace").decode(encoding))
    stream.flush()


def _encoding(stream: Any) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def _json_escape(char: str) -> str:
    """`char` as JSON writes it in ASCII, which reads well elsewhere too."""
    return json.dumps(char)[1:-1]
