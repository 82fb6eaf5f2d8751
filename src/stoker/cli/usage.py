"""The command line's own words: help pages in the language in force, and wrong usage as an error like any other.

typer prints English that no catalogue reaches; its fixed words are replaced where a help page is made.
"""

import re
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

from stoker.core.errors import JobFileError
from stoker.core.i18n import N_, _
from stoker.core.job_reasons import reason_of

_FIXED = (
    N_("Usage:"),
    N_("Arguments:"),
    N_("Options:"),
    N_("Commands:"),
    N_("Show this message and exit."),
    N_("Install completion for the current shell."),
    N_("Show completion for the current shell, to copy it or customize the installation."),
    N_("[required]"),
    N_("[default:"),
)
_NO_COMMAND = re.compile(r"No such command '(.*)'")
_CHOICES = re.compile(r"is not one of (.*?)\.?$")


class Command(TyperCommand):
    """A subcommand whose help page is in the language in force."""

    def get_help(self, ctx: Any) -> str:
        return _translated(super().get_help(ctx))


class Group(TyperGroup):
    """The command itself, alike."""

    def get_help(self, ctx: Any) -> str:
        return _translated(super().get_help(ctx))


def _translated(page: str) -> str:
    for words in _FIXED:
        anywhere = r"\s+".join(map(re.escape, words.split()))  # a narrow terminal wraps them
        page = re.sub(anywhere, lambda _found, words=words: _(words), page)  # type: ignore[misc]
    return page


def usage_error(error: Any) -> JobFileError:
    """typer's usage error (wrong command, option or argument) as ST009, in the language in force."""
    kind = type(error).__name__
    command = error.ctx.command_path if getattr(error, "ctx", None) is not None else "stoker"
    fix = _("`{command} --help` shows what there is").format(command=command)
    near: Sequence[str] = sorted(getattr(error, "possibilities", None) or ())
    if near:
        fix = _("did you mean {key}?").format(key=near[0]) + " " + fix
    return JobFileError("ST009", _problem(error, kind), place=command, fix=fix)


def _problem(error: Any, kind: str) -> str:
    param = getattr(error, "param", None)
    name = param.get_error_hint().strip("'\"") if param is not None else ""
    if kind == "NoSuchOption":
        return _("there is no option {name}").format(name=error.option_name)
    if kind == "MissingParameter":
        return _("{name} is missing").format(name=name or error.format_message())
    if kind == "BadParameter" and param is not None:
        return _("not a value for {name}: {problem}").format(name=name, problem=_reason(error))
    unknown = _NO_COMMAND.search(error.format_message())
    if unknown is not None:
        return _("there is no command {name}").format(name=unknown[1])
    return str(error.format_message())


def _reason(error: Any) -> str:
    """What is wrong with the value: pydantic's finding where there is one behind the error."""
    choices = _CHOICES.search(error.message)
    if choices is not None:
        return _("one of: {names}").format(names=choices[1])
    found = getattr(error.__cause__, "errors", None)
    return reason_of(found()[0]) if callable(found) else str(error.message)
