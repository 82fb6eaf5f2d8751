"""`stoker explain CODE`: what a code means and what to do; `stoker explain 312TFLOPS`: whose peak a figure is."""

import re
from typing import Annotated

import typer

from stoker.cli.console import print_answer, print_json
from stoker.cli.options import JsonOption, LangOption
from stoker.core.errors import JobFileError
from stoker.core.i18n import _
from stoker.core.units import TFLOP

_PEAK = re.compile(r"(\d{1,6}(?:\.\d{1,4})?) ?TFLOP(?:S|/s)", re.IGNORECASE)


def explain(
    code: Annotated[
        str,
        typer.Argument(
            help=_("a code such as ST012, or a peak such as 312TFLOPS; without one: the list of codes"),
            show_default=False,
        ),
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
    peak = _PEAK.fullmatch(code)
    if peak is not None:
        _explain_peak(float(peak[1]) * TFLOP, as_json)
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


def _explain_peak(flops_per_s: float, as_json: bool) -> None:
    """Products whose peak this is: dense (the one to divide by), with sparsity, or halved once too often (case 37)."""
    from stoker.catalogue.gpus import all_devices
    from stoker.estimators.utilisation import name_peak

    names = name_peak(flops_per_s, all_devices())
    if as_json:
        print_json({"flops_per_s": flops_per_s, "peak_of": names})
        return
    figure = f"{flops_per_s / TFLOP:g} TFLOP/s"
    if not names:
        print_answer(_("{figure} is the peak of no product in the table").format(figure=figure))
        return
    print_answer("\n".join([_("{figure} is the peak of:").format(figure=figure), *(f"  {name}" for name in names)]))
    print_answer(_("MFU divides by the dense peak of the very product and number format that ran."))
