"""stdout is the answer, stderr the talk. Colour and width come from the terminal; NO_COLOR is honoured."""

import functools
import sys
from typing import TYPE_CHECKING, Any

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

    return Console(stderr=True, highlight=False, emoji=False, markup=False, soft_wrap=True)


def print_answer(text: str) -> None:
    """Plain text to stdout; characters that the terminal's encoding lacks degrade, never raise."""
    _write(sys.stdout, text + "\n")


def print_json(value: Any) -> None:
    """One JSON document to stdout."""
    _write(sys.stdout, dumps(value, indent=2) + "\n")


def notice(text: str) -> None:
    """One line of talk to stderr."""
    _write(sys.stderr, text + "\n")


def _write(stream: Any, text: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, errors="replace").decode(encoding))
    stream.flush()
