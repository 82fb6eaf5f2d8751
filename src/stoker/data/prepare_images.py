"""prepare_data for images: paths and targets, every image decoded once, counts and overlaps by content."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker.core.errors import DataError
from stoker.core.estimate import Source
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.plan import ResolvedModel
from stoker.core.profile import DataProfile, lengths_constant
from stoker.data.cache import CacheEntry, cache_key, open_or_build
from stoker.data.encode import count_labels
from stoker.data.files import file_identity, find_existing
from stoker.data.image_files import check_images, images_in, pillow
from stoker.data.images import ImageDraft, ImageSplit, hold_out_images, image_key, read_image_splits
from stoker.data.labels import LabelSpace, Target, label_columns, require_two_values, space_of_classes, unknown_class
from stoker.data.notices import Notice
from stoker.data.overlap import count_conflicts, count_duplicates, count_leaks
from stoker.data.prepared import PreparedData
from stoker.data.profile_store import remember_profile
from stoker.data.report import DataReport, SplitReport, notices_of
from stoker.data.table import read_table


def prepare_images(job: Job, model: ResolvedModel) -> PreparedData:
    """The job's images. Raises DataError ST160 for the first that does not decode, ST1xx for the rest."""
    drafts = read_image_splits(job)
    for draft in drafts.values():
        if not len(draft):
            raise DataError(
                "ST130",
                _("no row is left in {name} ({why})").format(name=draft.name, why=dict(draft.dropped)),
                place=draft.data_file,
                fix=_("check the columns named under data, and the split"),
            )
    entry = _checked(drafts)
    digests: Mapping[str, str] = entry.content["digests"]
    if job.data.eval_frac is not None:
        drafts["train"], drafts["eval"] = hold_out_images(job, drafts["train"], digests)
    labels = _label_space(job, drafts["train"])
    splits: dict[str, ImageSplit] = {}
    reports: list[SplitReport] = []
    keys = {name: [image_key(path, digests) for path in draft.paths] for name, draft in drafts.items()}
    for name, draft in drafts.items():
        targets = _targets(job, draft, labels)
        splits[name] = ImageSplit(
            name=name, paths=draft.paths, targets=targets, rows=draft.rows, data_file=draft.data_file
        )
        reports.append(_split_report(draft, targets, labels, keys[name]))
    report = DataReport(
        splits=tuple(reports),
        leaks=count_leaks(keys),
        multi_label=job.problem == "multi_label",
        images_checked=len(digests),
    )
    profile = _profile(splits, labels, reports[0])
    remember_profile(job, model, profile, sampled=False)
    return PreparedData(
        train=splits["train"],
        eval=splits.get("eval"),
        test=splits.get("test"),
        labels=labels,
        profile=profile,
        report=report,
        notices=(*entry.notices, *_checked_by(), *notices_of(report)),
        reused=entry.reused,
    )


def prediction_images(job: Job, source: Path) -> ImageSplit:
    """Images to predict on: one image file, a folder of images, or a table with the job's image column."""
    if source.is_dir() or source.suffix.lower() not in (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet"):
        paths = [str(p) for p in (images_in(source) if source.is_dir() else [source])]
    else:
        column = job.data.image or "image"
        table = read_table(source, (column,), encoding=job.data.encoding)
        paths = [str(find_existing(table.file.parent / str(name))) for name in table.columns[column]]
    if not paths:
        raise DataError("ST104", _("there is no image"), place=str(source), fix=_("name a folder of images"))
    check_images([Path(p) for p in paths])
    rows = range(1, len(paths) + 1)
    return ImageSplit(name="predict", paths=paths, targets=[0] * len(paths), rows=rows, data_file=str(source))


def _checked(drafts: Mapping[str, ImageDraft]) -> CacheEntry:
    paths = [Path(path) for draft in drafts.values() for path in draft.paths]

    def build(_folder: Path) -> Mapping[str, Any]:
        return {"digests": check_images(paths)}

    key = cache_key("images", pillow() is not None, [file_identity(path) for path in paths])
    return open_or_build("images", key, build)


def _checked_by() -> tuple[Notice, ...]:
    if pillow() is not None:
        return ()
    return (Notice("ST162", _("Pillow is not installed: only the first bytes of each image were looked at")),)


def _label_space(job: Job, train: ImageDraft) -> LabelSpace:
    if job.problem == "multi_label":
        require_two_values(label_columns(job), train.labels, train.data_file)
        return LabelSpace(names=label_columns(job), problem="multi_label")
    return space_of_classes(job.data.label_names, train.labels, train.data_file)


def _targets(job: Job, draft: ImageDraft, labels: LabelSpace) -> list[Target]:
    if labels.problem == "multi_label":
        return list(draft.labels)
    index = {name: i for i, name in enumerate(labels.names)}
    for i, label in enumerate(draft.labels):
        if label not in index:
            raise unknown_class(label, labels, draft.place(i), declared=job.data.label_names is not None)
    return [index[label] for label in draft.labels]


def _split_report(draft: ImageDraft, targets: list[Target], labels: LabelSpace, keys: list[int]) -> SplitReport:
    return SplitReport(
        name=draft.name,
        file=draft.data_file,
        encoding=draft.encoding,
        num_rows=draft.num_rows,
        num_samples=len(draft),
        dropped=dict(draft.dropped),
        label_counts=count_labels(targets, labels),
        duplicates=count_duplicates(keys),
        conflicts=count_conflicts(keys, draft.labels),
    )


def _profile(splits: Mapping[str, ImageSplit], labels: LabelSpace, train: SplitReport) -> DataProfile:
    paths = splits["train"].paths
    step = max(len(paths) // 1000, 1)
    sizes = [Path(path).stat().st_size for path in paths[::step]]
    return DataProfile(
        num_samples=len(paths),
        lengths=lengths_constant(1),
        num_eval_samples=splits["eval"].num_samples if "eval" in splits else 0,
        num_labels=len(labels),
        bytes_per_sample=sum(sizes) / len(sizes),
        label_counts=dict(train.label_counts),
        source=Source.MEASURED,
    )
