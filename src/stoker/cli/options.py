"""Options that every command shares, so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from stoker.core.i18n import LANGUAGES, _

JobArgument = Annotated[Path, typer.Argument(help=_("job file (YAML)"), metavar="JOB", show_default=False)]
SetOption = Annotated[
    list[str],
    typer.Option(
        "--set",
        help=_("override a key of the job file: section.key=value"),
        metavar="KEY=VALUE",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help=_("print one JSON document on stdout"))]


def _known_language(value: str) -> str:
    if value and value not in LANGUAGES:
        raise typer.BadParameter(_("{value}; there are {names}").format(value=value, names=", ".join(LANGUAGES)))
    return value


LangOption = Annotated[
    str,
    typer.Option(
        "--lang",
        callback=_known_language,
        help=_("language of the output: en or ko (default: the locale)"),
        metavar="LANG",
        show_default=False,
    ),
]
