"""A report as Markdown: tables as tables, charts as fenced text, everything that came from outside escaped."""

from stoker.report.document import Document, Section
from stoker.report.tables import Column, markdown_escape, markdown_table
from stoker.report.terminal import draw_bars, draw_curves


def as_markdown(document: Document) -> str:
    """The whole report as one Markdown text."""
    parts = [f"# {markdown_escape(document.title)}", *(_section(section) for section in document.shown)]
    return "\n\n".join(parts)


def _section(section: Section) -> str:
    blocks = [f"## {markdown_escape(section.title)}"]
    pairs = [[name, value] for name, value in section.pairs if value]
    if pairs:
        blocks.append(markdown_table([Column(" "), Column(" ")], pairs))
    for table in section.tables:
        if table.rows:
            title = f"**{markdown_escape(table.title)}**\n\n" if table.title else ""
            blocks.append(title + markdown_table(table.columns, table.rows))
    charts = [draw_curves(curves) for curves in section.curves if curves.drawn]
    charts += [draw_bars(bars) for bars in section.bars if bars.bars]
    blocks += [_fenced(chart) for chart in charts]
    if section.lines:
        blocks.append("\n".join(f"- {markdown_escape(line)}" for line in section.lines))
    return "\n\n".join(blocks)


def _fenced(text: str) -> str:
    """`text` in a fence longer than any run of backticks in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"
