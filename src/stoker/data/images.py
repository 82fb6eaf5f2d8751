"""Image classification data: class folders, or a table with a column of image paths; paths and targets, not pixels."""

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.data.drafts import EMPTY_TEXT, MISSING_LABEL
from stoker.data.files import find_existing, real_path, resolve_path
from stoker.data.image_files import class_folders, images_in
from stoker.data.labels import Target, class_name, is_missing, label_columns, zero_or_one
from stoker.data.splits import SPLITS, held_out, split_positions
from stoker.data.table import Table, compose_name, read_table


class ImageSplit:
    """The images of one split; the engine decodes them.

    `name`: train, eval or test. `num_samples`; `lengths`: one each. `num_targets`: width of a multi-label target,
    else 1.
    """

    def __init__(
        self, *, name: str, paths: Sequence[str], targets: Sequence[Target], rows: Sequence[int], data_file: str
    ) -> None:
        self.name, self.data_file = name, data_file
        self.paths = tuple(paths)
        self._targets, self._rows = list(targets), list(rows)
        self.num_samples = len(self.paths)
        self.lengths = array("q", [1]) * self.num_samples
        first = self._targets[0] if self._targets else 0
        self.num_targets = len(first) if isinstance(first, list) else 1

    def __len__(self) -> int:
        return self.num_samples

    def path(self, i: int) -> str:
        """File of sample `i`."""
        return self.paths[i]

    def target(self, i: int) -> Target:
        """Class index of sample `i`, or its list of 0/1."""
        return self._targets[i]

    def row_number(self, i: int) -> int:
        """Row of the table that names sample `i`, or its position in the folder, from 1."""
        return self._rows[i]

    def place(self, i: int) -> str:
        """The image file, for errors."""
        return self.paths[i]


@dataclass(slots=True, kw_only=True)
class ImageDraft:
    """Images of one split with raw labels; `data_file`: the folder or table they come from."""

    name: str
    data_file: str
    encoding: str = "binary"
    num_rows: int = 0
    paths: list[str] = field(default_factory=list)
    labels: list[Any] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    def place(self, i: int) -> str:
        return self.paths[i]

    def chosen(self, positions: Sequence[int], name: str) -> "ImageDraft":
        """The images at `positions` as a split called `name`."""
        return ImageDraft(
            name=name,
            data_file=self.data_file,
            encoding=self.encoding,
            num_rows=len(positions),
            paths=[self.paths[i] for i in positions],
            labels=[self.labels[i] for i in positions],
            rows=[self.rows[i] for i in positions],
        )


def read_image_splits(job: Job) -> dict[str, ImageDraft]:
    """Drafts of train and, where given, eval and test; data.eval_frac is not applied yet. Raises DataError."""
    drafts: dict[str, ImageDraft] = {}
    for name, given in (("train", job.data.train), ("eval", job.data.eval), ("test", job.data.test)):
        if given is None:
            continue
        path = resolve_path(job, given)
        if real_path(path).is_dir():
            drafts[name] = _from_folder(job, path, name)
            continue
        table = read_table(path, image_columns(job, path, with_split=name == "train"), encoding=job.data.encoding)
        if name == "train" and job.data.split is not None:
            for split, positions in split_positions(table, job.data.split).items():
                drafts[split] = _from_table(job, table, positions, split)
        else:
            drafts[name] = _from_table(job, table, range(table.num_rows), name)
    return {name: drafts[name] for name in SPLITS if name in drafts}


def image_columns(job: Job, path: Path, *, with_split: bool) -> tuple[str, ...]:
    """Columns to read from a table of images. Raises DataError ST161 when the job names none."""
    labels = label_columns(job)
    if job.data.image is None or not labels:
        raise DataError(
            "ST161",
            _("a table of images needs data.image and data.labels"),
            place=str(path),
            fix=_("name the column of the image paths and the label column"),
        )
    split = (job.data.split,) if job.data.split and with_split else ()
    return (job.data.image, *labels, *split)


def hold_out_images(job: Job, draft: ImageDraft, digests: Mapping[str, str]) -> tuple[ImageDraft, ImageDraft]:
    """(train, eval) with data.eval_frac held out by train.seed; equal images stay together where hashes are known."""
    keys = [image_key(path, digests) for path in draft.paths]
    classes = draft.labels if job.problem == "single_label" else ()
    held = held_out(keys, classes, job.data.eval_frac or 0.0, job.train.seed)
    train = draft.chosen([i for i in range(len(draft)) if i not in held], "train")
    train.num_rows, train.dropped = draft.num_rows - len(held), draft.dropped
    return train, draft.chosen(sorted(held), "eval")


def image_key(path: str, digests: Mapping[str, str]) -> int:
    """64-bit key of an image: of its bytes where they were read, else of its class folder and name."""
    found = digests.get(path)
    if found is not None:
        return int(found, 16)
    name = "/".join(Path(path).parts[-2:])
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _from_folder(job: Job, folder: Path, name: str) -> ImageDraft:
    draft = ImageDraft(name=name, data_file=str(folder))
    if job.problem == "multi_label":
        raise DataError(
            "ST161",
            _("class folders give one label an image, the problem is multi_label"),
            place=str(folder),
            fix=_("give a table with data.image and the 0/1 columns in data.labels"),
        )
    for sub in class_folders(folder):
        label = compose_name(sub.name)
        for path in images_in(sub):
            draft.paths.append(str(path))
            draft.labels.append(label)
    draft.rows = list(range(1, len(draft) + 1))
    draft.num_rows = len(draft)
    if not len(draft):
        raise DataError(
            "ST104",
            _("the sub-folders hold no image"),
            place=str(folder),
            fix=_("jpeg, png, webp, bmp, gif and tiff files are read"),
        )
    return draft


def _from_table(job: Job, table: Table, positions: Sequence[int], name: str) -> ImageDraft:
    draft = ImageDraft(name=name, data_file=str(table.file), encoding=table.encoding, num_rows=len(positions))
    images, columns = table.columns[compose_name(job.data.image or "")], label_columns(job)
    for position in positions:
        if is_missing(images[position]):
            draft.dropped[EMPTY_TEXT] = draft.dropped.get(EMPTY_TEXT, 0) + 1
            continue
        place = [table.place(position, column) for column in columns]
        cells = [table.columns[compose_name(column)][position] for column in columns]
        label: Any = class_name(cells[0], place[0])
        if job.problem == "multi_label":
            values = [zero_or_one(cell, where) for cell, where in zip(cells, place, strict=True)]
            label = None if None in values else values
        if label is None:
            draft.dropped[MISSING_LABEL] = draft.dropped.get(MISSING_LABEL, 0) + 1
            continue
        draft.paths.append(str(find_existing(table.file.parent / str(images[position]))))
        draft.labels.append(label)
        draft.rows.append(table.row_numbers[position])
    return draft
