"""`stoker explain CODE`: what a code means and what to do."""

from typing import Annotated

import typer

from stoker.cli.console import print_answer, print_json
from stoker.cli.options import JsonOption, LangOption
from stoker.core.errors import JobFileError
from stoker.core.i18n import _


def explain(
    code: Annotated[
        str, typer.Argument(help=_("a code such as ST012; without one: the list"), show_default=False)
    ] = "",
    as_json: JsonOption = False,
    lang: LangOption = "",
) -> None:
    from stoker.core.codes import ALL_CODES, find_code

    if not code:
        if as_json:
            print_json([{"code": c.number, "title": _(c.title)} for c in ALL_CODES])
        else:
            print_answer("\n".join(f"{c.number}  {_(c.title)}" for c in ALL_CODES))
        return
    found = find_code(code)
    if found is None:
        raise JobFileError(
            "ST008",
            _("there is no code {code}").format(code=code),
            place="explain",
            fix=_("`stoker explain` lists them all"),
        )
    if as_json:
        print_json(
            {
                "code": found.number,
                "title": _(found.title),
                "meaning": _(found.meaning),
                "cure": _(found.cure),
            }
        )
        return
    print_answer(f"{found.number}  {_(found.title)}\n\n{_(found.meaning)}\n\n-> {_(found.cure)}")
