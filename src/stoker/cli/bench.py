"""`stoker bench JOB`: a few real steps of the plan's pick here, predicted beside measured, kept for the next plan."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stoker.cli.console import notice, print_answer, print_json
from stoker.cli.options import JobArgument, JsonOption, LangOption, SetOption
from stoker.core.i18n import _

if TYPE_CHECKING:
    from pathlib import Path

    from stoker.core.comparison import Comparison
    from stoker.core.efficiency import Correction
    from stoker.core.plan import Candidate
    from stoker.core.record import RunRecord

EXIT_NOTHING_FITS = 3
EXIT_NOTHING_MEASURED = 5


def bench(
    job: JobArgument,
    overrides: SetOption = [],  # noqa: B006 typer copies it
    steps: Annotated[int, typer.Option(min=3, max=200, help=_("steps to time, after two of warm-up"))] = 5,
    yes: Annotated[bool, typer.Option("--yes", "-y", help=_("also when the plan says it may not fit"))] = False,
    store: Annotated[bool, typer.Option("--store/--no-store", help=_("keep the correction for the next plan"))] = True,
    as_json: JsonOption = False,
    lang: LangOption = "",
) -> None:
    from stoker.cli.progress import run_progress
    from stoker.cli.run import plan_here
    from stoker.core.io import read_job
    from stoker.engine.bench import bench as measure_plan

    plan = plan_here(read_job(job, overrides))
    candidate = plan.picked or (plan.candidates[0] if plan.candidates else None)
    if candidate is None or (plan.pick is None and not yes):
        notice(_("nothing that fits was found; --yes measures the first candidate all the same"))
        raise typer.Exit(EXIT_NOTHING_FITS)
    notice(plan.summary or candidate.why)
    progress = run_progress(plan.job.goal.currency, plan.usd_krw)
    try:
        record = measure_plan(plan, steps=steps, progress=progress)
    finally:
        progress.close()
    correction, kept = _correction(record, store=store)
    _answer(record, candidate, correction, kept, as_json=as_json)
    if correction is None:
        raise typer.Exit(EXIT_NOTHING_MEASURED)


def _correction(record: "RunRecord", *, store: bool) -> "tuple[Correction | None, Path | None]":
    """What the record teaches, and the file that holds it now; a cache that cannot be written is no reason to fail."""
    from stoker.catalogue.efficiency import write_corrections
    from stoker.estimators.calibrate import corrections

    found = corrections([record])
    if not found:
        return None, None
    if not store:
        return found[0], None
    try:
        return found[0], write_corrections(found)
    except OSError as error:
        notice(_("what was measured could not be kept for the next plan: {error}").format(error=error))
        return found[0], None


def _answer(
    record: "RunRecord",
    candidate: "Candidate",
    correction: "Correction | None",
    kept: "Path | None",
    *,
    as_json: bool,
) -> None:
    from stoker.core.codec import encode

    rows = _compared(record, candidate)
    if as_json:
        print_json(
            {
                "cluster": candidate.cluster.label,
                "run_config": encode(candidate.run_config),
                "steps_s": [line.step_s for line in record.steps],
                "warm_up_steps": 2,
                "compared": [{**encode(row), "error_frac": row.error_frac} for row in rows],
                "correction": encode(correction),
                "stored": str(kept) if kept else None,
            }
        )
        return
    print_answer(_text(rows, candidate, correction, kept))


def _compared(record: "RunRecord", candidate: "Candidate") -> "list[Comparison]":
    """Step time over the mean steps, memory at the fullest; the total and the cost of so few steps say nothing."""
    from dataclasses import replace

    from stoker.estimators.calibrate import typical_step_s
    from stoker.report.measured import compare, measure

    measured = replace(measure(record), step_s=typical_step_s(record))
    return [row for row in compare(record, measured, candidate) if row.name not in ("total", "cost")]


def _text(
    rows: "list[Comparison]", candidate: "Candidate", correction: "Correction | None", kept: "Path | None"
) -> str:
    from stoker.core.human import format_percent, format_quantity
    from stoker.report.content import quantity_name
    from stoker.report.plan_text import source_name
    from stoker.report.tables import Column, render_table

    columns = [
        Column(_("quantity")),
        Column(_("predicted"), "right"),
        Column(_("measured"), "right"),
        Column(_("off by"), "right"),
        Column(_("source")),
    ]

    def cells(row: Any) -> list[str]:
        return [
            quantity_name(row.name),
            format_quantity(row.predicted, row.unit),
            format_quantity(row.measured, row.unit),
            format_percent(row.error_frac, signed=True),
            source_name(row.source),
        ]

    lines = [
        f"{candidate.cluster.label}, {candidate.run_config.label}",
        render_table(columns, [cells(row) for row in rows], indent="  "),
    ]
    if correction is None:
        lines.append(_("too few steps: nothing was learned"))
    else:
        lines.append(
            _("measured over the formulas: step time x {time:.2f}, memory x {memory:.2f}").format(
                time=correction.time_factor, memory=correction.memory_factor
            )
        )
    if kept is not None:
        lines.append(
            _("the next `stoker plan` on this machine uses this and says calibrated ({file})").format(file=kept)
        )
    return "\n".join(lines)
