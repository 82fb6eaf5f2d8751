"""prepare_data: the files of a job, read, checked, tokenised and cached. What `check` shows and `run` trains on."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stoker.core.codec import decode, encode
from stoker.core.errors import DataError
from stoker.core.estimate import Source
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.plan import ResolvedModel
from stoker.core.profile import DataProfile, lengths_from_samples
from stoker.data.cache import cache_key, open_or_build
from stoker.data.drafts import Draft
from stoker.data.encode import EncodeCounts, Progress, count_labels, make_targets, write_split
from stoker.data.encoded import EncodedSplit, require_samples
from stoker.data.files import hash_file, regular_file, resolve_path
from stoker.data.hub import local_source
from stoker.data.labels import LabelSpace, Target, label_columns, require_two_values, space_of_classes
from stoker.data.overlap import count_conflicts, count_duplicates, count_leaks
from stoker.data.prepared import PreparedData
from stoker.data.profile_store import remember_profile
from stoker.data.report import DataReport, SplitReport, notices_of, token_stats
from stoker.data.seq_limit import embedding_rows, resolve_seq_len
from stoker.data.splits import SPLITS, read_splits
from stoker.data.tokenizer import TextTokenizer, require_tokenizer, require_vocabulary, settle_parallelism

__all__ = ["PreparedData", "prepare_data"]

_VERSION = 2


def prepare_data(job: Job, model: ResolvedModel, *, progress: Progress | None = None) -> PreparedData:
    """The job's data, tokenised into the cache or found there, with its profile and report.

    `progress(split, done, total)` is called now and then. Raises DataError ST1xx for anything wrong with the data.
    """
    if job.data.train is None:
        raise DataError(
            "ST101",
            _("the job names no data: data.train is missing"),
            place=f"{job.source_path} data".strip(),
            fix=_("name the training file; declared sizes are for planning only"),
        )
    job = local_source(job)
    if job.task == "image_classification":
        from stoker.data.prepare_images import prepare_images

        return prepare_images(job, model)
    seq_len = resolve_seq_len(job, model.config)
    for file in _data_files(job):
        regular_file(file)
    tokenizer = require_tokenizer(job, model)
    rows = embedding_rows(model.config)
    require_vocabulary(tokenizer, rows)

    def build(folder: Path) -> Mapping[str, Any]:
        return _build(job, tokenizer, seq_len, rows, folder, progress)

    entry = open_or_build("tokens", _key(job, tokenizer, seq_len), build)
    settle_parallelism()
    labels = None if entry.content["labels"] is None else decode(LabelSpace, entry.content["labels"])
    report = _named_here(job, decode(DataReport, entry.content["report"]), entry.folder)
    profile: DataProfile = decode(DataProfile, entry.content["profile"])
    remember_profile(job, model, profile, sampled=False)
    splits = {name: _open(entry.folder, name, report, labels) for name in SPLITS if report.split(name)}
    return PreparedData(
        train=splits["train"],
        eval=splits.get("eval"),
        test=splits.get("test"),
        labels=labels,
        profile=profile,
        report=report,
        notices=(*entry.notices, *notices_of(report)),
        tokenizer=tokenizer,
        seq_len=seq_len,
        reused=entry.reused,
    )


def _data_files(job: Job) -> list[Path]:
    named = (job.data.train, job.data.eval, job.data.test)
    return [resolve_path(job, name) for name in named if name is not None]


def _key(job: Job, tokenizer: TextTokenizer, seq_len: int) -> str:
    import tokenizers

    data = encode(replace(job.data, train=None, eval=None, test=None))
    contents = [hash_file(path) for path in _data_files(job)]
    named = [job.data.eval is not None, job.data.test is not None]
    settings = (job.task, job.problem, job.train.seed, seq_len, data, named)
    return cache_key(_VERSION, tokenizers.__version__, tokenizer.fingerprint, settings, contents)


def _build(
    job: Job,
    tokenizer: TextTokenizer,
    seq_len: int,
    rows: int | None,
    folder: Path,
    progress: Progress | None,
) -> Mapping[str, Any]:
    drafts = read_splits(job, tokenizer)
    labels = _label_space(job, drafts["train"])
    reports: list[SplitReport] = []
    counts: dict[str, EncodeCounts] = {}
    keys: dict[str, list[int]] = {}
    for name, draft in drafts.items():
        targets = None if labels is None else make_targets(draft, labels, declared=job.data.label_names is not None)
        counts[name] = write_split(
            folder / f"{name}.arrow",
            draft,
            targets,
            labels,
            tokenizer,
            seq_len=seq_len,
            embedding_rows=rows,
            progress=progress,
        )
        keys[name] = draft.text_keys()
        reports.append(_split_report(draft, keys[name], counts[name], targets, labels))
        split = EncodedSplit(folder / f"{name}.arrow", name=name, data_file=str(draft.table.file), num_targets=0)
        require_samples(split, draft.dropped)
    report = DataReport(
        splits=tuple(reports),
        leaks=count_leaks(keys),
        seq_len=seq_len,
        multi_label=job.problem == "multi_label",
    )
    profile = _profile(counts, labels, report)
    return {"labels": encode(labels), "report": encode(report), "profile": encode(profile)}


def _named_here(job: Job, report: DataReport, folder: Path) -> DataReport:
    """The report with this job's paths: tokens are found by content, so a copy under another name shares them."""
    data = job.data
    own = {"eval": data.eval, "test": data.test}
    files = {name: str(resolve_path(job, own.get(name) or data.train or "")) for name in SPLITS}
    return replace(report, splits=tuple(replace(s, file=files[s.name]) for s in report.splits), cache=str(folder))


def _label_space(job: Job, train: Draft) -> LabelSpace | None:
    if job.task == "causal_lm":
        return None
    columns, place = label_columns(job), f"{train.table.file} {', '.join(label_columns(job))}"
    if job.problem == "multi_label":
        require_two_values(columns, train.labels, place)
        return LabelSpace(names=columns, problem="multi_label")
    return space_of_classes(job.data.label_names, train.labels, place)


def _split_report(
    draft: Draft, keys: list[int], counts: EncodeCounts, targets: list[Target] | None, labels: LabelSpace | None
) -> SplitReport:
    return SplitReport(
        name=draft.name,
        file=str(draft.table.file),
        encoding=draft.table.encoding,
        num_rows=draft.num_rows,
        num_samples=len(counts.lengths),
        dropped=dict(draft.dropped),
        label_counts=count_labels(targets, labels) if targets is not None and labels is not None else {},
        tokens=token_stats(counts.lengths, cut=counts.cut, unknown=counts.unknown) if counts.lengths else None,
        composed_rows=draft.composed,
        duplicates=count_duplicates(keys),
        conflicts=count_conflicts(keys, draft.labels),
        quoted=draft.table.quoted,
    )


def _profile(counts: Mapping[str, EncodeCounts], labels: LabelSpace | None, report: DataReport) -> DataProfile:
    train, evaluation, first = counts["train"], counts.get("eval"), report.split("train")
    return DataProfile(
        num_samples=len(train.lengths),
        lengths=lengths_from_samples(train.lengths),
        num_eval_samples=len(evaluation.lengths) if evaluation else 0,
        num_labels=len(labels) if labels else None,
        bytes_per_sample=train.text_bytes / len(train.lengths),
        label_counts=dict(first.label_counts) if first else {},
        source=Source.MEASURED,
    )


def _open(folder: Path, name: str, report: DataReport, labels: LabelSpace | None) -> EncodedSplit:
    found = report.split(name)
    width = 0 if labels is None else len(labels) if labels.problem == "multi_label" else 1
    return EncodedSplit(
        folder / f"{name}.arrow",
        name=name,
        data_file=found.file if found else "",
        num_targets=width,
    )
