"""What a report on one run says: the job, how it ended, predicted beside measured, metrics, curves, elsewhere.

Builds a `Document` from a `RunSummary`; numbers are formatted here, drawn elsewhere.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from stoker.core.comparison import Comparison, RunSummary
from stoker.core.human import (
    format_bytes,
    format_count,
    format_duration,
    format_large,
    format_money,
    format_number,
    format_percent,
    format_quantity,
    format_rate,
)
from stoker.core.i18n import N_, _
from stoker.core.record import EventLine, RunRecord
from stoker.report.document import Bar, Bars, Curves, Document, Point, Section, Series, Table
from stoker.report.measured import best_eval, measure
from stoker.report.plan_text import offer_name, source_name
from stoker.report.summary import label_metrics
from stoker.report.tables import Column

_EVENTS: Final = 20
_LABELS: Final = 60
STATUS_NAMES: Final[dict[str, str]] = {
    "finished": N_("finished"),
    "interrupted": N_("interrupted"),
    "failed": N_("failed"),
    "running": N_("running, or killed"),
}
QUANTITY_NAMES: Final[dict[str, str]] = {
    "peak_allocated": N_("peak memory, allocated"),
    "peak_reserved": N_("peak memory, reserved"),
    "peak_process": N_("peak memory, process"),
    "mfu": N_("MFU, of the dense peak"),
    "step": N_("step time"),
    "tier_compute": N_("of it computing"),
    "tier_waiting": N_("of it updating and waiting for memory tiers"),
    "total": N_("total time"),
    "cost": N_("cost"),
}


def one_run(summary: RunSummary) -> Document:
    """The report on one run."""
    return Document(
        title=_("run {name}").format(name=summary.name),
        sections=[
            _job(summary),
            _status(summary),
            predictions(summary),
            _metrics(summary),
            _curves(summary),
            _pace(summary),
            _elsewhere(summary),
            _data(summary),
            _events(summary.record),
            Section(title=_("notes"), lines=list(summary.notes)),
        ],
    )


def money(summary: RunSummary, usd: float | None) -> str:
    """USD in the currency of the run's job."""
    plan = summary.plan
    return format_money(usd, plan.job.goal.currency if plan else "USD", plan.usd_krw if plan else None)


def _quantity(summary: RunSummary, value: float | None, unit: str) -> str:
    return money(summary, value) if unit == "usd" else format_quantity(value, unit)


def _job(summary: RunSummary) -> Section:
    plan, header = summary.plan, summary.record.header
    pairs: list[tuple[str, str]] = []
    if plan is not None:
        job = plan.job
        kind = f"{job.task}, {job.problem}" if job.task != "causal_lm" else job.task
        batch, epochs = format_count(job.train.global_batch_size), format_number(job.train.epochs)
        pairs += [
            (_("model"), _("{name}, {num} parameters").format(name=plan.model.name, num=format_large(plan.num_params))),
            (_("task"), kind),
            (_("tuning"), f"{job.tune.method}, {format_large(plan.num_trainable_params)}"),
            (_("data"), job.data.train or ""),
            (
                _("training"),
                _("epochs {epochs}, global batch {batch}, learning rate {lr}, seed {seed}").format(
                    epochs=epochs.rstrip("0").rstrip("."), batch=batch, lr=f"{job.train.lr:g}", seed=job.train.seed
                ),
            ),
        ]
    if summary.candidate is not None:
        pairs.append((_("ran as"), f"{summary.candidate.cluster.label}, {summary.candidate.run_config.label}"))
    pairs += [(_("hardware"), _hardware(header.get("hardware"))), (_("versions"), _flat(header.get("versions")))]
    pairs.append((_("started"), str(header.get("date", ""))))
    return Section(title=_("job"), pairs=pairs)


def _hardware(value: Any) -> str:
    """The machine of a run: device, threads, system; what the header lacks is left out."""
    if not isinstance(value, Mapping):
        return value if isinstance(value, str) else ""
    threads = value.get("threads")
    shown = [value.get("device"), _("{num} threads").format(num=threads) if threads else None, value.get("system")]
    return ", ".join(str(item) for item in shown if item)


def _flat(value: Any) -> str:
    """A header entry as one line: names with their plain values."""
    if isinstance(value, Mapping):
        plain = {k: v for k, v in value.items() if isinstance(v, (str, int, float)) and v not in ("", None)}
        return ", ".join(f"{k} {_plain(k, v)}" for k, v in plain.items())
    return value if isinstance(value, str) else ""


def _plain(name: str, value: object) -> str:
    return format_bytes(float(value)) if name.endswith("_bytes") and isinstance(value, (int, float)) else str(value)


def _status(summary: RunSummary) -> Section:
    record, measured = summary.record, measure(summary.record)
    planned = summary.candidate.time.num_steps if summary.candidate else None
    steps = format_count(measured.last_step)
    if planned:
        steps = _("{done} of {planned} ({share})").format(
            done=steps, planned=format_count(planned), share=format_percent(measured.last_step / planned)
        )
    best = best_eval(record)
    reason = str(record.end.get("reason") or record.end.get("error") or "") if record.end else ""
    resumes = sum(event.name == "resume" for event in record.events)
    pairs = [
        (_("status"), _(STATUS_NAMES.get(record.status, record.status)) + (f": {reason}" if reason else "")),
        (_("steps"), steps),
        (_("time"), format_duration(measured.elapsed_s)),
        (_("cost"), money(summary, measured.cost_usd) if measured.cost_usd is not None else ""),
        (_("resumed"), _("{num} times").format(num=resumes) if resumes else ""),
        (_("best at step"), format_count(best.step) if best else ""),
        (_("last checkpoint"), record.saves[-1].path if record.saves else ""),
    ]
    return Section(title=_("how it went"), pairs=pairs)


def predictions(summary: RunSummary) -> Section:
    """Predicted beside measured, with the error, the interval and where the prediction comes from."""
    shown = [c for c in summary.comparisons if c.predicted is not None]
    columns = [
        Column(_("quantity")),
        Column(_("predicted"), "right"),
        Column(_("interval"), "right"),
        Column(_("measured"), "right"),
        Column(_("off by"), "right"),
        Column(_("inside")),
        Column(_("source")),
    ]
    rows = [
        [
            quantity_name(c.name),
            _quantity(summary, c.predicted, c.unit),
            _interval(summary, c),
            _quantity(summary, c.measured, c.unit),
            format_percent(c.error_frac, signed=True),
            inside(c),
            source_name(c.source),
        ]
        for c in shown
    ]
    bars = [
        Bar(
            name=quantity_name(c.name),
            value=c.predicted / c.measured,
            text=format_percent(c.error_frac, signed=True),
            low=c.low / c.measured if c.low is not None else None,
            high=c.high / c.measured if c.high is not None else None,
        )
        for c in shown
        if c.measured and c.predicted is not None
    ]
    charts = (
        [Bars(title=_("predicted as a share of measured (the line is exact)"), bars=bars, reference=1.0)]
        if bars
        else []
    )
    return Section(title=_("predicted beside measured"), tables=[Table(columns=columns, rows=rows)], bars=charts)


def quantity_name(name: str) -> str:
    """A compared quantity in the user's language."""
    return _(QUANTITY_NAMES[name]) if name in QUANTITY_NAMES else name.replace("_", " ")


def _interval(summary: RunSummary, c: Comparison) -> str:
    if c.low is None or c.high is None:
        return ""
    low, high = _quantity(summary, c.low, c.unit), _quantity(summary, c.high, c.unit)
    return _("{low} to {high}").format(low=low, high=high)


def inside(c: Comparison) -> str:
    """Whether the measured value lies in the predicted interval: yes, no, or nothing where either is missing."""
    if c.measured is None or c.low is None or c.high is None:
        return ""
    return _("yes") if c.low <= c.measured <= c.high else _("no")


def _metrics(summary: RunSummary) -> Section:
    record = summary.record
    best, last = best_eval(record), record.evals[-1] if record.evals else None
    names = list(dict.fromkeys([*(best.metrics if best else ()), *(last.metrics if last else ())]))
    test = {k.removeprefix("test_"): v for k, v in summary.metrics.items() if k.startswith("test_")}
    names += [name for name in test if name not in names]
    columns = [
        Column(_("metric")),
        Column(_("best (step {step})").format(step=format_count(best.step)) if best else _("best"), "right"),
        Column(_("last (step {step})").format(step=format_count(last.step)) if last else _("last"), "right"),
        Column(_("test"), "right"),
    ]
    rows = [
        [
            name,
            format_number(best.metrics.get(name)) if best else "",
            format_number(last.metrics.get(name)) if last else "",
            format_number(test.get(name)) if test else "",
        ]
        for name in names
    ]
    return Section(title=_("metrics"), tables=[Table(columns=columns, rows=rows), _label_table(record)])


def _label_table(record: RunRecord) -> Table:
    labels = label_metrics(record)
    names = list(dict.fromkeys(key for values in labels.values() for key in values))
    rows = [[label, *(_label_number(n, values.get(n)) for n in names)] for label, values in labels.items()]
    columns = [Column(_("label")), *(Column(name, "right") for name in names)]
    return Table(columns=columns, rows=rows[:_LABELS], title=_("each label"))


def _label_number(name: str, value: float | None) -> str:
    return format_count(value) if name == "support" else format_number(value)


def finite(points: Sequence[Point]) -> list[Point]:
    """The points that can be drawn."""
    return [point for point in points if math.isfinite(point[0]) and math.isfinite(point[1])]


def loss_points(record: RunRecord) -> list[Point]:
    """(step, training loss) of every logged step with a finite loss."""
    return finite([(float(line.step), line.loss) for line in record.steps])


def metric_points(record: RunRecord, name: str) -> list[Point]:
    """(step, metric) of every evaluation that has it."""
    return finite([(float(line.step), line.metrics[name]) for line in record.evals if name in line.metrics])


def _curves(summary: RunSummary) -> Section:
    record = summary.record
    loss = Curves(
        title=_("loss"),
        x_label=_("step"),
        series=[
            Series(name=_("training"), points=loss_points(record)),
            Series(name=_("evaluation"), points=metric_points(record, "loss"), sparse=True),
        ],
        format_y=format_number,
    )
    charts = [loss]
    metric = summary.plan.job.metric if summary.plan else ""
    points = metric_points(record, metric) if metric != "loss" else []
    if len(points) > 1:
        series = [Series(name=metric, points=points, sparse=True)]
        charts.append(Curves(title=metric, x_label=_("step"), series=series, format_y=format_number))
    bad = sum(not math.isfinite(line.loss) for line in record.steps)
    lines = [_("{num} logged steps had a loss that is no number").format(num=bad)] if bad else []
    return Section(title=_("curve"), curves=charts, lines=lines)


def _pace(summary: RunSummary) -> Section:
    m = measure(summary.record)
    is_text = summary.plan is None or summary.plan.job.task != "image_classification"
    pairs = [
        (_("samples"), format_rate(m.samples_per_s, _("samples")) if m.samples_per_s else ""),
        (_("tokens"), format_rate(m.tokens_per_s, _("tokens")) if m.tokens_per_s and is_text else ""),
        (_("padding"), format_percent(m.padding_frac) if m.padding_frac is not None and is_text else ""),
        (_("waiting for data"), format_percent(m.data_wait_frac) if m.data_wait_frac is not None else ""),
        (_("evaluation"), format_duration(m.eval_s) if m.eval_s is not None else ""),
        (_("saving"), format_duration(m.save_s) if m.save_s is not None else ""),
    ]
    return Section(title=_("where the time went"), pairs=pairs)


def _elsewhere(summary: RunSummary) -> Section:
    others = sorted(summary.elsewhere, key=lambda o: (o.cost is None, o.cost.total_usd if o.cost else 0.0))
    columns = [
        Column(_("GPUs")),
        Column(_("fits")),
        Column(_("total time"), "right"),
        Column(_("cost"), "right"),
        Column(_("cheapest offer")),
        Column(_("price of")),
    ]
    rows = [
        [
            other.cluster,
            _("yes") if other.fits else _("no"),
            format_duration(other.total_s),
            money(summary, other.cost.total_usd) if other.cost else _("no price"),
            offer_name(other.cost) if other.cost else "",
            other.cost.as_of if other.cost else "",
        ]
        for other in others
    ]
    priced = [other for other in others if other.cost is not None and other.fits]
    bars = [
        Bar(name=o.cluster, value=o.cost.total_usd, text=money(summary, o.cost.total_usd))
        for o in priced
        if o.cost is not None
    ]
    charts = [Bars(title=_("predicted cost of the same run"), bars=bars)] if len(bars) > 1 else []
    # a rented machine is paid for from its start on; the run here began with its data and weights in place
    lines = [_("time and cost count the machine's start, the installation and the download of the weights")]
    return Section(
        title=_("the same run elsewhere (predicted)"),
        tables=[Table(columns=columns, rows=rows)],
        bars=charts,
        lines=lines if rows else [],
    )


def _data(summary: RunSummary) -> Section:
    if summary.plan is None:
        return Section(title=_("data"))
    profile, task = summary.plan.profile, summary.plan.job.task
    pairs = [
        (_("training samples"), format_count(profile.num_samples)),
        (_("evaluation samples"), format_count(profile.num_eval_samples) if profile.num_eval_samples else ""),
        (_("labels"), format_count(profile.num_labels) if profile.num_labels else ""),
    ]
    if task != "image_classification":
        text = _("mean {mean}, 99 % up to {p99}, longest {longest}").format(
            mean=format_number(profile.lengths.mean, 3),
            p99=format_count(profile.lengths.quantile(0.99)),
            longest=format_count(profile.lengths.maximum),
        )
        pairs.append((_("tokens per sample"), text))
    pairs.append((_("source"), source_name(profile.source)))
    bars = [Bar(name=n, value=float(c), text=format_count(c)) for n, c in profile.label_counts.items()][:_LABELS]
    charts = [Bars(title=_("samples of each label"), bars=bars)] if bars else []
    return Section(title=_("data"), pairs=pairs, bars=charts)


def _events(record: RunRecord) -> Section:
    told = [event for event in record.events if event.message]
    lines = [_event(event) for event in told[-_EVENTS:]]
    if len(told) > _EVENTS:
        lines.insert(0, _("{num} earlier events are in record.jsonl").format(num=len(told) - _EVENTS))
    return Section(title=_("events"), lines=lines)


def _event(event: EventLine) -> str:
    code = f"[{event.code}] " if event.code else ""
    return f"{format_duration(event.elapsed_s)}: {code}" + " ".join(event.message.split())
