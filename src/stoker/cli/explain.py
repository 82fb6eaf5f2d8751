"""`stoker explain CODE`: what a code means and what to do; `stoker explain 312TFLOPS`: whose peak a figure is.

`stoker explain 420TFLOPS --gpu H200-SXM-141GB`: the MFU of what a run reaches there, in `--format`.
"""

import re
from typing import Annotated

import typer

from stoker.cli.console import print_answer, print_json
from stoker.cli.options import JsonOption, LangOption
from stoker.core.errors import JobFileError
from stoker.core.i18n import _
from stoker.core.units import TFLOP

_FORMATS = ("bf16", "fp16", "tf32", "fp32", "fp8", "fp4", "int8")
_PEAK = re.compile(r"(\d{1,6}(?:\.\d{1,4})?) ?TFLOP(?:S|/s)", re.IGNORECASE)


def explain(
    code: Annotated[
        str,
        typer.Argument(
            help=_("a code such as ST012, or a peak such as 312TFLOPS; without one: the list of codes"),
            show_default=False,
        ),
    ] = "",
    gpu: Annotated[
        str, typer.Option(help=_("GPU that reached that many model FLOP/s: which share of its peak they are"))
    ] = "",
    number_format: Annotated[str, typer.Option("--format", help=_("number format that computed"))] = "bf16",
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
    if peak is not None and gpu:
        _explain_share(float(peak[1]) * TFLOP, gpu, number_format, as_json)
        return
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


def _explain_share(flops_per_s: float, gpu: str, number_format: str, as_json: bool) -> None:
    """MFU on `gpu`: over its dense peak, never another's; more than the peak is no figure and exits 2 (case 37)."""
    from stoker.catalogue.gpus import find_device
    from stoker.core.human import format_percent
    from stoker.core.utilisation import peak_flops_per_s, share_of_peak

    device = find_device(gpu, place="--gpu")
    if number_format not in _FORMATS:
        raise typer.BadParameter(
            _("--format {value}; there are {names}").format(value=number_format, names=", ".join(_FORMATS))
        )
    form, peak = peak_flops_per_s(device, number_format)
    share, problem = share_of_peak(flops_per_s, device, number_format)
    if as_json:
        print_json(
            {
                "flops_per_s": flops_per_s,
                "gpu": device.name,
                "format": form,
                "peak_flops_per_s": peak,
                "mfu_frac": share,
                "problem": problem,
            }
        )
    elif share is None:
        print_answer(problem)
    else:
        print_answer(
            _("MFU {share}: {flops:g} of {peak:g} TFLOP/s ({gpu} {format}, dense)").format(
                share=format_percent(share),
                flops=flops_per_s / TFLOP,
                peak=peak / TFLOP,
                gpu=device.name,
                format=form,
            )
        )
    if share is None:
        raise typer.Exit(2)
