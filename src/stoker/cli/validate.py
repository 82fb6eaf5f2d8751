"""`stoker validate`: predicted beside measured, for the facts that ship, a table of your own, and your own runs."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stoker.cli.console import notice, print_answer, print_json
from stoker.cli.options import JsonOption, LangOption
from stoker.core.i18n import _

if TYPE_CHECKING:
    from stoker.validation.decisions import Decided
    from stoker.validation.own import OwnRow
    from stoker.validation.run import Compared
    from stoker.validation.score import Score
    from stoker.validation.summary import QuantityScores, Summary
    from stoker.validation.table import Row
    from stoker.validation.trend import Change

EXIT_BUG = 1
EXIT_NOTHING_SCORED = 5
_WORST = 5  # rows shown of each quantity without --all
_REASONS = 8


def validate(
    rows: Annotated[
        Path | None,
        typer.Option(
            "--rows",
            help=_("score this CSV of measured runs instead of the facts that ship"),
            metavar="FILE.csv",
            show_default=False,
        ),
    ] = None,
    records: Annotated[
        list[Path],
        typer.Option(
            "--records",
            help=_("run folders, or folders of them; may stand several times (default: ./runs)"),
            metavar="DIR",
            show_default=False,
        ),
    ] = [],  # noqa: B006 typer copies it
    left_out: Annotated[
        bool,
        typer.Option(
            "--left-out",
            help=_("leave each source out of the fit in turn: first with its program known, then unknown too"),
        ),
    ] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help=_("every row, and every reason for a row not scored"))
    ] = False,
    as_json: JsonOption = False,
    lang: LangOption = "",
) -> None:
    from dataclasses import replace

    from stoker.catalogue.efficiency import load_efficiency
    from stoker.validation.own import own_rows
    from stoker.validation.run import compare, compare_left_out
    from stoker.validation.summary import summarise
    from stoker.validation.trend import trend

    efficiency = replace(load_efficiency(), corrections=())
    table = _table(rows)
    compared = compare_left_out(table, efficiency, described=False) if left_out else compare(table, efficiency)
    described = compare_left_out(table, efficiency, described=True) if left_out else []
    summary = summarise(compared)
    own = own_rows(_folders(records, default=rows is None))
    changes = trend(summary) if rows is None and not left_out else []
    independent = compare(_independent(), efficiency) if rows is None else []
    if as_json:
        print_json(_document(compared, summary, own, changes, independent, described))
    else:
        _print_apart(_("Constants fitted without each source in turn, its program known"), described, show_all=show_all)
        if left_out:
            print_answer(_("Its program unknown too") + "\n")
        print_answer(_text(compared, summary, own, changes, show_all=show_all) + "\n")
        _print_apart(_("Sources that nothing was fitted on"), independent, show_all=show_all)
    scored = bool(summary.num_scored) or any(one.error is not None for one in own)
    _finish([*compared, *described, *independent], scored)


def _finish(compared: "Sequence[Compared]", any_scored: bool) -> None:
    """The exit code, after the answer: 1 where a row met a fault of stoker's, 5 where nothing was scored."""
    found = [row for row in compared if row.is_bug]
    if found:
        notice(_("line {line}: {reason}").format(line=found[0].row.line, reason=found[0].reason))
        notice("  -> " + _("set STOKER_TRACEBACK=1 and run it again for the traceback, then report it"))
        raise typer.Exit(EXIT_BUG)
    if not any_scored:
        raise typer.Exit(EXIT_NOTHING_SCORED)


def _table(rows: Path | None) -> "list[Row]":
    """The rows of the file, or the facts that ship."""
    from stoker.catalogue.measurements import all_measurements, as_columns
    from stoker.validation.table import Row, read_table

    if rows is not None:
        return read_table(rows)
    return [Row(columns=as_columns(fact), line=fact.line, measurement=fact) for fact in all_measurements()]


def _independent() -> "list[Row]":
    """The facts of sources that nothing was fitted on."""
    from stoker.catalogue.measurements import as_columns, independent_measurements
    from stoker.validation.table import Row

    return [Row(columns=as_columns(fact), line=fact.line, measurement=fact) for fact in independent_measurements()]


def _folders(records: Sequence[Path], *, default: bool) -> list[Path]:
    """Run folders that were named, or those below ./runs; a named folder without a record counts, to be told so."""
    from stoker.validation.own import run_folders

    if records:
        return [folder for named in records for folder in (run_folders(named) or [named])]
    return run_folders(Path("runs")) if default else []


def _document(
    compared: "Sequence[Compared]",
    summary: "Summary",
    own: "Sequence[OwnRow]",
    changes: "Sequence[Change]",
    independent: "Sequence[Compared]",
    described: "Sequence[Compared]",
) -> dict[str, Any]:
    from dataclasses import asdict

    from stoker.validation.summary import rows_json, summarise, summary_json

    def apart(rows: "Sequence[Compared]") -> dict[str, Any] | None:
        return {"rows": rows_json(rows), "summary": summary_json(summarise(rows))} if rows else None

    return {
        "rows": rows_json(compared),
        "summary": summary_json(summary),
        "own_runs": [{**asdict(row), "error": row.error} for row in own],
        "trend": [asdict(change) for change in changes],
        "left_out": bool(described),
        "left_out_described": apart(described),
        "independent": apart(independent),
    }


def _text(
    compared: "Sequence[Compared]",
    summary: "Summary",
    own: "Sequence[OwnRow]",
    changes: "Sequence[Change]",
    *,
    show_all: bool,
) -> str:
    head = _("{scored} of {rows} rows scored").format(scored=summary.num_scored, rows=summary.num_rows)
    parts = [head, *_quantities_text(summary)]
    parts.append(_decisions_text(summary, show_all=show_all))
    parts.append(_rows_text(compared, show_all=show_all))
    parts.append(_reasons_text(summary.not_scored, show_all=show_all))
    parts += [_own_text(own)] if own else []
    parts += [_trend_text(changes)] if changes else []
    return "\n\n".join(part for part in parts if part)


def _print_apart(title: str, rows: "Sequence[Compared]", *, show_all: bool) -> None:
    """Scores that stand apart from those of rows that constants were fitted on; nothing without rows."""
    if rows:
        print_answer(_apart_text(title, rows, show_all=show_all) + "\n")


def _apart_text(title: str, rows: "Sequence[Compared]", *, show_all: bool) -> str:
    from stoker.validation.summary import summarise

    summary = summarise(rows)
    head = _("{title}: {scored} of {rows} rows scored").format(
        title=title, scored=summary.num_scored, rows=summary.num_rows
    )
    parts = [head, *_quantities_text(summary)]
    parts += [_decisions_text(summary, show_all=show_all), _reasons_text(summary.not_scored, show_all=show_all)]
    return "\n\n".join(part for part in parts if part)


def _quantities_text(summary: "Summary") -> list[str]:
    titles = {"memory": _("Memory"), "step_time": _("Step time"), "total_time": _("Whole training")}
    return [_scores_text(titles[name], scores) for name, scores in summary.quantities.items()]


def _scores_text(title: str, scores: "QuantityScores") -> str:
    """One quantity: the average of its sources and all runs, after calibration, then by group."""
    from stoker.report.tables import Column, render_table

    columns = [
        Column(title),
        Column(_("runs"), "right"),
        Column(_("median error"), "right"),
        Column(_("90 %"), "right"),
        Column(_("predicted/measured"), "right"),
        Column(_("in interval"), "right"),
        Column(_("above high"), "right"),
        Column(_("high/expected"), "right"),
    ]
    lines = [
        (_("average of {count} sources").format(count=scores.overall.sources), scores.overall),
        (_("all runs"), scores.pooled),
    ]
    if scores.calibrated is not None and scores.calibrated_pooled is not None:
        lines += [
            (_("after one calibration run, average of sources"), scores.calibrated),
            (_("after one calibration run, all runs"), scores.calibrated_pooled),
        ]
    for heading, groups in (
        (_("source"), scores.by_source),
        (_("GPU"), scores.by_gpu),
        (_("method"), scores.by_method),
        (_("role"), scores.by_role if len(scores.by_role) > 1 else {}),
    ):
        lines += [(f"{heading}: {name}", score) for name, score in groups.items()]
    return render_table(columns, [_score_cells(name, score) for name, score in lines])


def _score_cells(name: str, score: "Score") -> list[str]:
    return [
        name,
        str(score.n),
        f"{score.median:.1%}",
        f"{score.p90:.1%}",
        f"{score.ratio:.2f}",
        f"{score.covered:.0%}",
        f"{score.above_high:.1%}",
        f"{score.high_over_expected:.2f}",
    ]


def _decisions_text(summary: "Summary", *, show_all: bool) -> str:
    lines = [
        _decided(_("ran out of memory, and predicted not to fit"), summary.out_of_memory),
        _decided(_("ran, and predicted to fit"), summary.ran),
        _decided(_("pairs of GPUs more than 10 % apart, the faster named"), summary.rank),
    ]
    wrong = [*summary.out_of_memory.wrong, *summary.ran.wrong, *summary.rank.wrong] if show_all else []
    return "\n".join([line for line in lines if line] + ["  " + _("wrong: {row}").format(row=row) for row in wrong])


def _decided(what: str, decided: "Decided") -> str:
    if not decided.n:
        return ""
    share = decided.right / decided.n
    return _("{what}: {right} of {count} ({share})").format(
        what=what, right=decided.right, count=decided.n, share=f"{share:.1%}"
    )


def _rows_text(compared: "Sequence[Compared]", *, show_all: bool) -> str:
    """Predicted, measured, error: every row, or the worst of each quantity."""
    from stoker.report.tables import Column, clip, render_table
    from stoker.validation.decisions import label

    shown = list(compared) if show_all else _worst(compared)
    cells = []
    for row in shown:
        found, prediction = row.measurement, row.prediction
        if found is None or prediction is None:
            continue
        error = _error(row)
        cells.append(
            [
                clip(label(row), 90),
                found.metric,
                f"{prediction.expected:.4g}",
                f"{prediction.low:.4g} .. {prediction.high:.4g}",
                f"{found.value:.4g}",
                f"{error:.1%}" if error is not None else "",
                f"{prediction.fit_probability:.0%}" if prediction.fit_probability is not None else "",
            ]
        )
    if not cells:
        return ""
    columns = [
        Column(_("row") if show_all else _("the worst rows")),
        Column(_("quantity")),
        Column(_("predicted"), "right"),
        Column(_("90 % interval"), "right"),
        Column(_("measured"), "right"),
        Column(_("error"), "right"),
        Column(_("fits"), "right"),
    ]
    return render_table(columns, cells)


def _worst(compared: "Iterable[Compared]") -> "list[Compared]":
    from stoker.validation.score import quantity_of

    by_quantity: dict[str, list[Compared]] = {}
    for row in compared:
        quantity = quantity_of(row.measurement.metric) if row.measurement else None
        if quantity and row.prediction is not None:
            by_quantity.setdefault(quantity, []).append(row)
    return [
        row
        for members in by_quantity.values()
        for row in sorted(members, key=lambda one: -(_error(one) or 0.0))[:_WORST]
    ]


def _error(row: "Compared") -> float | None:
    from stoker.validation.run import error_of

    return error_of(row)


def _reasons_text(reasons: Mapping[str, int], *, show_all: bool) -> str:
    if not reasons:
        return ""
    shown = list(reasons.items()) if show_all else list(reasons.items())[:_REASONS]
    lines = [_("not scored:"), *(f"  {count:>5}  {reason}" for reason, count in shown)]
    if len(shown) < len(reasons):
        rest = sum(reasons.values()) - sum(count for _reason, count in shown)
        lines.append("  " + _("{count} more rows for other reasons; --all shows them").format(count=rest))
    return "\n".join(lines)


def _own_text(own: "Sequence[OwnRow]") -> str:
    from stoker.report.tables import Column, clip, render_table

    roles = {"calibration": _("calibration"), "holdout": _("holdout"), "excluded": _("excluded")}
    columns = [
        Column(_("own runs")),
        Column(_("role")),
        Column(_("quantity")),
        Column(_("predicted"), "right"),
        Column(_("measured"), "right"),
        Column(_("error"), "right"),
        Column(_("reason")),
    ]
    cells = [
        [
            clip(row.run, 60),
            roles[row.role],
            f"{row.metric} ({row.unit})" if row.metric else "",
            f"{row.predicted:.4g}" if row.predicted is not None else "",
            f"{row.measured:.4g}" if row.measured is not None else "",
            f"{row.error:.1%}" if row.error is not None else "",
            row.reason,
        ]
        for row in own
    ]
    return render_table(columns, cells)


def _trend_text(changes: "Sequence[Change]") -> str:
    from stoker.report.tables import Column, render_table

    first = changes[0]
    columns = [
        Column(_("since release {release} of {date}").format(release=first.release, date=first.date)),
        Column(_("quantity")),
        Column(_("median before"), "right"),
        Column(_("now"), "right"),
        Column(_("90 % before"), "right"),
        Column(_("now"), "right"),
    ]
    cells = [
        [
            change.source,
            change.quantity,
            f"{change.median_before:.1%}",
            f"{change.median:.1%}",
            f"{change.p90_before:.1%}",
            f"{change.p90:.1%}",
        ]
        for change in changes
    ]
    return render_table(columns, cells)
