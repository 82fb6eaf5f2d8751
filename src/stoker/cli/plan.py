"""`stoker plan JOB`: does it fit, how long, how dear, on which GPU, how many. Exit 0 something fits, 3 nothing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli.console import notice, print_answer, print_json
from stoker.cli.options import JobArgument, JsonOption, LangOption, SetOption
from stoker.core.i18n import _

if TYPE_CHECKING:
    from stoker.cli.plan_trace import Traced
    from stoker.core.explanation import Explanation
    from stoker.core.plan import Plan

EXIT_NOTHING_FITS = 3


def plan(
    job: JobArgument,
    overrides: SetOption = [],  # noqa: B006 typer copies it
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help=_("also write the plan to this file"), show_default=False)
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help=_("every candidate and every rejection"))] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help=_("every term with formula, inputs and source; what would make it smaller")),
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help=_("also trace the pick's memory from the model's own code (needs torch)"))
    ] = False,
    as_json: JsonOption = False,
    lang: LangOption = "",
) -> None:
    from stoker.core.io import read_job
    from stoker.core.plan_io import plan_to_json, write_plan
    from stoker.planner.gather import plan_job

    result = plan_job(read_job(job, overrides))
    explanation = _explanation(result) if explain else None
    traced = _traced(result) if trace else None
    if out is not None:
        write_plan(result, out)
        notice(_("plan written to {path}").format(path=out))
    if as_json:
        document = plan_to_json(result)
        if explain:
            document["explain"] = explanation
        if traced is not None:
            document["traced"] = traced.to_json()
        print_json(document)
    else:
        from stoker.report.plan_text import plan_text

        print_answer(plan_text(result, show_all=show_all, explanation=explanation))
        if traced is not None:
            from stoker.report.trace_text import trace_text

            print_answer("\n" + trace_text(traced.analytic, traced.memory, traced.gap, traced.notes))
    if result.pick is None:
        raise typer.Exit(EXIT_NOTHING_FITS)


def _explanation(result: "Plan") -> "Explanation | None":
    from stoker.catalogue.efficiency import load_efficiency
    from stoker.planner.breakdown import explain_plan

    return explain_plan(result, load_efficiency())


def _traced(result: "Plan") -> "Traced | None":
    from stoker.catalogue.efficiency import load_efficiency
    from stoker.cli.plan_trace import trace_pick

    notice(_("tracing the pick's memory: this takes seconds to minutes"))
    return trace_pick(result, load_efficiency())
