"""`stoker check JOB`: the data as the model will see it, and what is odd about it; `plan` uses what it measured."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stoker.cli.console import notice, print_answer, print_json
from stoker.cli.options import JobArgument, JsonOption, LangOption, SetOption
from stoker.core.i18n import _

if TYPE_CHECKING:
    from stoker.core.job import Job
    from stoker.core.plan import ResolvedModel
    from stoker.data.prepared import PreparedData
    from stoker.data.report import DataReport, Example

ExamplesOption = Annotated[
    int, typer.Option("--examples", help=_("how many samples to show; 0: none of the data's text"), min=0, max=1000)
]
DownloadOption = Annotated[
    bool, typer.Option("--download", help=_("fetch the model and a hub data set first (safetensors, no pickle)"))
]
_EXAMPLE_WIDTH = 600


def check(
    job_file: JobArgument,
    examples: ExamplesOption = 3,
    download: DownloadOption = False,
    overrides: SetOption = [],  # noqa: B006 (typer reads the default)
    as_json: JsonOption = False,
    lang: LangOption = "",
) -> None:
    from dataclasses import replace

    from stoker.core.io import read_job
    from stoker.data.examples import render_examples
    from stoker.data.prepare import prepare_data

    job = read_job(job_file, overrides)
    if download:
        fetch(job)
    model, num_params = _resolve(job, None)
    tell = _Teller()
    data = prepare_data(job, model, progress=tell)
    tell.close()
    if data.labels is not None and len(data.labels) != job.num_declared_labels:
        model, num_params = _resolve(job, len(data.labels))
    report = replace(data.report, examples=render_examples(data, examples))
    if as_json:
        print_json(_as_json(data, report, model, num_params))
        return
    print_answer("\n\n".join(part for part in _parts(job, data, report, model, num_params) if part))


def fetch(job: "Job") -> None:
    """Fetch the job's model, and its data set where it is a hub id, into the Hugging Face cache."""
    from stoker.data.files import resolve_path
    from stoker.data.hub import download, is_hub_id

    wanted = []
    if isinstance(job.model, str) and is_hub_id(job.model) and not resolve_path(job, job.model).exists():
        wanted.append((job.model, "models"))
    train = job.data.train
    if train is not None and is_hub_id(train) and not resolve_path(job, train).exists():
        wanted.append((train, "datasets"))
    for name, kind in wanted:
        notice(_("fetching {name} ...").format(name=name))
        folder = download(name, kind)
        notice(_("{name} is in {folder}").format(name=name, folder=folder))


def _resolve(job: "Job", num_labels: int | None) -> "tuple[ResolvedModel, int]":
    from stoker.catalogue.models.api import resolve_model

    model, arch = resolve_model(job, num_labels)
    return model, arch.num_params


class _Teller:
    """Progress of tokenising on stderr: one line that is rewritten in a terminal, nothing elsewhere."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()

    def __call__(self, split: str, done: int, total: int) -> None:
        if self._live:
            sys.stderr.write(
                "\r"
                + _("tokenising {split}: {done:,} of {total:,}").format(split=split, done=done, total=total)
                + "\x1b[K"
            )
            sys.stderr.flush()

    def close(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")


def _as_json(data: "PreparedData", report: "DataReport", model: "ResolvedModel", num_params: int) -> dict[str, Any]:
    from stoker.core.codec import encode

    return {
        "model": {"name": model.name, "num_params": num_params},
        "seq_len": data.seq_len,
        "labels": encode(data.labels),
        "report": encode(report),
        "profile": encode(data.profile),
        "notices": [{"code": n.code, "text": n.text} for n in data.notices],
    }


def _parts(
    job: "Job", data: "PreparedData", report: "DataReport", model: "ResolvedModel", num_params: int
) -> list[str]:
    from stoker.core.human import format_count

    head = _("{model}: {params} parameters, {task}").format(
        model=model.name, params=format_count(num_params), task=job.task
    )
    if data.seq_len is not None:
        head += ", " + _("samples cut at {seq_len} tokens").format(seq_len=data.seq_len)
    return [
        head,
        _split_table(report),
        _label_table(report),
        *(_example(e) for e in report.examples),
        "\n".join(str(n) for n in data.notices),
        _outlook(data),
    ]


def _split_table(report: "DataReport") -> str:
    from stoker.report.tables import Column, render_table

    titles = [_("split"), _("rows"), _("samples"), _("mean tokens"), "p50", "p95", "p99", _("longest"), _("cut")]
    columns = [Column(titles[0]), *(Column(title, "right") for title in titles[1:]), Column(_("file"))]
    rows = []
    for split in report.splits:
        t = split.tokens
        lengths = [""] * 6 if t is None else [f"{t.mean:.1f}", *map(_whole, (t.p50, t.p95, t.p99, t.maximum))]
        if t is not None:
            lengths.append(f"{t.cut_frac:.2%}")
        encoding = "" if split.encoding == "binary" else f" ({split.encoding})"
        rows.append([split.name, _whole(split.num_rows), _whole(split.num_samples), *lengths, split.file + encoding])
    text = render_table(columns, rows)
    if report.images_checked is not None:
        text += "\n" + _("{count} images decoded to the end").format(count=_whole(report.images_checked))
    return text


def _label_table(report: "DataReport") -> str:
    from stoker.report.tables import Column, clip, render_table

    labelled = [split for split in report.splits if split.label_counts]
    if not labelled:
        return ""
    columns = [Column(_("label")), *(Column(split.name, "right") for split in labelled)]
    rows = []
    for name in labelled[0].label_counts:
        counts = [(split.label_counts.get(name, 0), split.num_samples) for split in labelled]
        rows.append([clip(visible(name), 40), *(f"{n:,} {n / total:7.2%}" for n, total in counts)])
    return render_table(columns, rows[:100]) + (
        "\n" + _("... and {count} more labels").format(count=len(rows) - 100) if len(rows) > 100 else ""
    )


def _example(example: "Example") -> str:
    from stoker.report.tables import clip

    head = _("row {row}, {count} tokens").format(row=example.row, count=example.num_tokens)
    if example.cut:
        head += ", " + _("cut here")
    if example.labels:
        head += ": " + ", ".join(visible(name) for name in example.labels)
    masked = any(segment.loss for segment in example.segments)
    lines = [head]
    for segment in example.segments:
        mark = (_("loss") if segment.loss else _("no loss")) + " | " if masked else ""
        lines.append("  " + mark + clip(visible(segment.text), _EXAMPLE_WIDTH))
    return "\n".join(lines)


def visible(text: str) -> str:
    """`text` that cannot steer a terminal: control characters become a dot, line breaks a pilcrow (cp949 has both)."""
    kept = ("¶" if char == "\n" else char if char.isprintable() else "·" for char in text)
    return "".join(kept)


def _outlook(data: "PreparedData") -> str:
    profile = data.profile
    if data.seq_len is None:
        return _("`stoker plan` now uses {samples} measured images.").format(samples=_whole(profile.num_samples))
    return _(
        "`stoker plan` now uses what was measured: {samples} training samples, {mean:.1f} tokens on average, "
        "longest {longest:.0f}."
    ).format(samples=_whole(profile.num_samples), mean=profile.lengths.mean, longest=profile.lengths.maximum)


def _whole(value: int) -> str:
    return f"{value:,}"


__all__: Sequence[str] = ["check", "fetch", "visible"]
