"""What a report on several runs says: one row a run, their curves in one chart, and how good the predictions were."""

from collections.abc import Callable, Sequence

from stoker.core.comparison import RunSummary
from stoker.core.human import format_bytes, format_count, format_duration, format_number, format_percent
from stoker.core.i18n import _
from stoker.report.content import STATUS_NAMES, inside, loss_points, money, quantity_name
from stoker.report.document import Bar, Bars, Curves, Document, Section, Series, Table
from stoker.report.measured import measure
from stoker.report.summary import peak_bytes
from stoker.report.tables import Column


def several_runs(summaries: Sequence[RunSummary]) -> Document:
    """The report on several runs."""
    names = unique_names([summary.name for summary in summaries])
    return Document(
        title=_("{num} runs side by side").format(num=len(summaries)),
        sections=[
            _overview(names, summaries),
            _metrics(names, summaries),
            _loss(names, summaries),
            _charts(names, summaries),
            _errors(names, summaries),
            Section(
                title=_("notes"),
                lines=[f"{name}: {note}" for name, s in zip(names, summaries, strict=True) for note in s.notes],
            ),
        ],
    )


def unique_names(names: Sequence[str]) -> list[str]:
    """`names`, numbered where one stands twice."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if names.count(name) == 1 else f"{name} ({seen[name]})")
    return result


def _metric_names(summaries: Sequence[RunSummary]) -> list[str]:
    """The metrics that decide what is best, over all runs, and what the test set gave for them."""
    deciding = [s.plan.job.metric for s in summaries if s.plan is not None] or ["loss"]
    names = list(dict.fromkeys(name for metric in deciding for name in (metric, f"test_{metric}")))
    return [name for name in names if any(name in s.metrics for s in summaries)]


def _overview(names: Sequence[str], summaries: Sequence[RunSummary]) -> Section:
    columns = [
        Column(_("run")),
        Column(_("status")),
        Column(_("GPUs")),
        Column(_("how")),
        Column(_("steps"), "right"),
        Column(_("total time"), "right"),
        Column(_("step time"), "right"),
        Column(_("cost"), "right"),
        Column(_("peak memory"), "right"),
        Column(_("last training loss"), "right"),
    ]
    return Section(
        title=_("overview"),
        tables=[Table(columns=columns, rows=[_row(n, s) for n, s in zip(names, summaries, strict=True)])],
    )


def _row(name: str, summary: RunSummary) -> list[str]:
    m, candidate = measure(summary.record), summary.candidate
    losses = loss_points(summary.record)
    return [
        name,
        _(STATUS_NAMES.get(summary.record.status, summary.record.status)),
        candidate.cluster.label if candidate else "",
        candidate.run_config.label if candidate else "",
        format_count(m.last_step),
        format_duration(m.elapsed_s),
        format_duration(m.step_s),
        money(summary, m.cost_usd) if m.cost_usd is not None else "",
        format_bytes(peak_bytes(m)),
        format_number(losses[-1][1]) if losses else "",
    ]


def _metrics(names: Sequence[str], summaries: Sequence[RunSummary]) -> Section:
    """A table of its own: beside the overview's columns it would not fit a terminal or a page."""
    metrics = _metric_names(summaries)
    rows = [[n, *(format_number(s.metrics.get(m)) for m in metrics)] for n, s in zip(names, summaries, strict=True)]
    columns = [Column(_("run")), *(Column(metric_name(metric), "right") for metric in metrics)]
    return Section(title=_("metrics"), tables=[Table(columns=columns, rows=rows if metrics else [])])


def metric_name(name: str) -> str:
    """A metric as the record calls it; the loss is told from that of training."""
    return _("evaluation loss") if name == "loss" else name


def _loss(names: Sequence[str], summaries: Sequence[RunSummary]) -> Section:
    series = [Series(name=n, points=loss_points(s.record)) for n, s in zip(names, summaries, strict=True)]
    chart = Curves(title=_("training loss"), x_label=_("step"), series=series, format_y=format_number)
    return Section(title=_("curves"), curves=[chart])


def _charts(names: Sequence[str], summaries: Sequence[RunSummary]) -> Section:
    measured = [measure(summary.record) for summary in summaries]
    times = [(m.elapsed_s, format_duration(m.elapsed_s)) for m in measured]
    costs = [(m.cost_usd, money(s, m.cost_usd)) for s, m in zip(summaries, measured, strict=True)]
    memory = [(peak_bytes(m), format_bytes(peak_bytes(m))) for m in measured]
    charts = [
        _bars(_("total time"), names, times),
        _bars(_("cost"), names, costs),
        _bars(_("peak memory"), names, memory),
    ]
    for metric in _metric_names(summaries):
        values = [s.metrics.get(metric) for s in summaries]
        charts.append(_bars(metric_name(metric), names, [(value, format_number(value)) for value in values]))
    return Section(title=_("charts"), bars=[chart for chart in charts if len(chart.bars) > 1])  # one compares nothing


def _bars(title: str, names: Sequence[str], values: Sequence[tuple[float | None, str]]) -> Bars:
    bars = [Bar(name=n, value=float(v), text=t) for n, (v, t) in zip(names, values, strict=True) if v is not None]
    return Bars(title=title, bars=bars)


def _errors(names: Sequence[str], summaries: Sequence[RunSummary]) -> Section:
    """Prediction errors: a row a run, a column a quantity; `!` where the measured value left the interval."""
    quantities = list(dict.fromkeys(c.name for s in summaries for c in s.comparisons if c.error_frac is not None))
    rows = []
    for name, summary in zip(names, summaries, strict=True):
        cells = {c.name: format_percent(c.error_frac, signed=True) + _flag(inside(c)) for c in summary.comparisons}
        rows.append([name, *(cells.get(quantity, "-") for quantity in quantities)])
    label: Callable[[str], Column] = lambda quantity: Column(quantity_name(quantity), "right")  # noqa: E731
    columns = [Column(_("run")), *map(label, quantities)]
    table = Table(columns=columns, rows=rows if quantities else [])
    lines = (
        [_("! the measured value lies outside the predicted interval")] if any("!" in "".join(r) for r in rows) else []
    )
    return Section(title=_("error of the predictions"), tables=[table], lines=lines)


def _flag(within: str) -> str:
    return " !" if within and within == _("no") else ""
