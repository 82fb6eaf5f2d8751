"""A report as one HTML file: style and charts inside, no script, nothing fetched, every text escaped.

A content-security policy in the file forbids scripts and requests, should anything slip through the escaping.
"""

from html import escape
from typing import Final

from stoker.core.i18n import language
from stoker.report.document import Document, Section, Table
from stoker.report.svg import bars_svg, curves_svg

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = """
:root{--bg:#fff;--fg:#1b1f24;--soft:#5b6570;--line:#d5dae0;--c0:#0b62a8;--c1:#b4530a;--c2:#1a7f4b;--c3:#8a2d8f;
--c4:#a3212c;--c5:#5a6b00;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e4e7ea;--soft:#9aa4ae;--line:#343b42;--c0:#6cb2ee;
--c1:#f0a160;--c2:#5fc98f;--c3:#d78cdb;--c4:#f08a92;--c5:#bccf57}}
body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,"Apple SD Gothic Neo","Malgun Gothic","Noto Sans KR",
sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;margin:.7rem 0;display:block;overflow-x:auto;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft)}
th,td{padding:.25rem .8rem .25rem 0;text-align:left;border-bottom:1px solid var(--line);vertical-align:top;
word-break:keep-all}th{color:var(--soft);font-weight:600}.right{text-align:right}th.right,td.right,td:first-child{white-space:nowrap}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:.7rem 0}dt{color:var(--soft)}dd{margin:0}
figure{margin:1rem 0}figcaption{color:var(--soft)}svg{width:100%;height:auto;max-width:46rem}
svg text{fill:var(--soft);font-size:12px}.grid{stroke:var(--line)}
.mark{stroke:var(--fg);stroke-dasharray:4 3}.whisker{stroke:var(--fg);stroke-width:2}
polyline{fill:none;stroke-width:1.6}.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0}
.legend i{display:inline-block;width:1rem;height:.25rem;margin-right:.4rem;vertical-align:middle}
"""


def as_html(document: Document) -> str:
    """The whole report as one self-contained HTML text (UTF-8)."""
    body = "\n".join(_section(section) for section in document.shown)
    colours = "".join(
        f".c{i}{{stroke:var(--c{i})}}.d{i}{{fill:var(--c{i})}}.k{i}{{background:var(--c{i})}}" for i in range(6)
    )
    title = escape(document.title)
    return (
        f'<!doctype html>\n<html lang="{language()}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}{colours}</style>\n</head>\n"
        f"<body>\n<h1>{title}</h1>\n{body}\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    parts = [f"<section>\n<h2>{escape(section.title)}</h2>"]
    pairs = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in section.pairs if value)
    if pairs:
        parts.append(f"<dl>{pairs}</dl>")
    parts += [_table(table) for table in section.tables if table.rows]
    parts += [curves_svg(curves) for curves in section.curves if curves.drawn]
    parts += [bars_svg(bars) for bars in section.bars if bars.bars]
    if section.lines:
        parts.append("<ul>" + "".join(f"<li>{escape(line)}</li>" for line in section.lines) + "</ul>")
    return "\n".join([*parts, "</section>"])


def _table(table: Table) -> str:
    shown = [i for i in range(len(table.columns)) if any(row[i] for row in table.rows)]
    classes = {i: ' class="right"' if table.columns[i].align == "right" else "" for i in shown}
    head = "".join(f"<th{classes[i]}>{escape(table.columns[i].title)}</th>" for i in shown)
    rows = "".join(
        "<tr>" + "".join(f"<td{classes[i]}>{escape(row[i])}</td>" for i in shown) + "</tr>" for row in table.rows
    )
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
