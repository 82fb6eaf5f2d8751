"""`stoker report RUN...`: one run in full, or several side by side; as text, Markdown, JSON, HTML and PNG."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli.console import notice, print_answer
from stoker.cli.options import JsonOption, LangOption
from stoker.core.errors import RecordError
from stoker.core.i18n import _, language, set_language

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoker.core.comparison import RunSummary
    from stoker.report.document import Document

RunsArgument = Annotated[
    list[Path], typer.Argument(help=_("run folders, or their record.jsonl"), metavar="RUN...", show_default=False)
]
MarkdownOption = Annotated[bool, typer.Option("--md", help=_("print Markdown"))]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", help=_("also write one self-contained HTML file"), metavar="FILE", show_default=False),
]
PngOption = Annotated[
    Path | None, typer.Option("--png", help=_("also write the charts as PNG"), metavar="FILE", show_default=False)
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help=_("write the answer to this file, not to stdout"), metavar="FILE", show_default=False
    ),
]
ElsewhereOption = Annotated[
    bool, typer.Option("--elsewhere/--no-elsewhere", help=_("price the same run on rented GPUs (one run only)"))
]


def report(
    runs: RunsArgument,
    as_json: JsonOption = False,
    as_markdown: MarkdownOption = False,
    html: HtmlOption = None,
    png: PngOption = None,
    output: OutOption = None,
    elsewhere: ElsewhereOption = True,
    lang: LangOption = "",
) -> None:
    from stoker.core.record_io import read_record
    from stoker.report.png import require_matplotlib
    from stoker.report.summary import summarise

    if png is not None:
        require_matplotlib()
    summaries = [summarise(read_record(run)) for run in runs]
    if elsewhere and len(summaries) == 1:
        summaries = [_with_elsewhere(summaries[0])]
    if html is not None:
        from stoker.report.html import as_html

        _write(html, as_html(_document(summaries)).encode("utf-8"))
    if png is not None:
        _write(png, _png(summaries))
    encoding = "utf-8" if output is not None else getattr(sys.stdout, "encoding", None)
    answer = _answer(summaries, as_json=as_json, as_markdown=as_markdown, encoding=encoding)
    if output is None:
        print_answer(answer)
    else:
        _write(output, (answer + "\n").encode("utf-8"))


def _with_elsewhere(summary: "RunSummary") -> "RunSummary":
    """With the same run priced on rented GPUs; what stands in the way becomes a note, the report goes on."""
    from dataclasses import replace

    from stoker.core.errors import BadInput
    from stoker.planner.elsewhere import plan_elsewhere

    if summary.plan is None:
        return summary
    try:
        return replace(summary, elsewhere=plan_elsewhere(summary.plan))
    except BadInput as error:
        note = _("not priced elsewhere: {problem}").format(problem=error.problem)
        return replace(summary, notes=(*summary.notes, note))


def _document(summaries: "Sequence[RunSummary]") -> "Document":
    from stoker.report.content import one_run
    from stoker.report.side_by_side import several_runs

    return one_run(summaries[0]) if len(summaries) == 1 else several_runs(summaries)


def _answer(summaries: "Sequence[RunSummary]", *, as_json: bool, as_markdown: bool, encoding: str | None) -> str:
    if as_json:
        from stoker.core.codec import dumps
        from stoker.report.as_json import report_json

        return dumps(report_json(summaries), indent=2)
    if as_markdown:
        from stoker.report.markdown import as_markdown as markdown_text

        return markdown_text(_document(summaries))
    from stoker.report.terminal import as_text

    return as_text(_document(summaries), encoding=encoding)


def _png(summaries: "Sequence[RunSummary]") -> bytes:
    """The charts; in English where no installed font has Korean glyphs."""
    from stoker.report.png import as_png, korean_font

    before = language()
    if before == "ko" and korean_font() is None:
        set_language("en")
    try:
        return as_png(_document(summaries))
    finally:
        set_language(before)


def _write(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    except OSError as error:
        raise RecordError(
            "ST604",
            _("the report cannot be written: {error}").format(error=error.strerror or error),
            place=str(file),
            fix=_("name a file in a folder that you may write to"),
        ) from error
    notice(_("wrote {file}").format(file=file))
