"""Labels: which there are, and what each row says, checked value by value.

multi_label: one 0/1 column a label. single_label: one column; the classes are data.label_names in that order, else
the values that training has, sorted (numbers by size).
"""

import difflib
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.core.job import Job

Target = int | list[int]
_ZERO_ONE = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
_MANY = 1000  # above this many classes, and with hardly two rows a class, the column is an id or a measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSpace:
    """The labels in the order of the model's outputs."""

    names: tuple[str, ...]
    problem: Literal["single_label", "multi_label"]

    def __len__(self) -> int:
        return len(self.names)

    def words(self, target: Target) -> tuple[str, ...]:
        """The label names that `target` stands for."""
        if isinstance(target, int):
            return (self.names[target],)
        return tuple(name for name, on in zip(self.names, target, strict=True) if on)


def label_columns(job: Job) -> tuple[str, ...]:
    """Columns of the labels."""
    labels = job.data.labels
    return () if labels is None else (labels,) if isinstance(labels, str) else tuple(labels)


def zero_or_one(value: Any, place: str) -> int | None:
    """0 or 1 of a multi-label cell, None where it is empty. Raises DataError ST120 for anything else."""
    if is_missing(value):
        return None
    found = _ZERO_ONE.get(str(value).strip().lower())
    if found is None:
        raise DataError(
            "ST120",
            _("a label column holds 0 or 1, not {value}").format(value=repr(value)[:40]),
            place=place,
            fix=_("write 0 or 1; for one column that names the class use data.labels: COLUMN with single_label"),
        )
    return found


def class_name(value: Any, place: str) -> str | None:
    """The class of a single-label cell as text (1.0 and 1 are the same), None where it is empty."""
    if is_missing(value):
        return None
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (str, int, float)):
        return unicodedata.normalize("NFC", str(value).strip())
    raise DataError(
        "ST111",
        _("a label is a word or a number, not {kind}").format(kind=type(value).__name__),
        place=place,
        fix=_("name the column of the label in data.labels"),
    )


def is_missing(value: Any) -> bool:
    """None, NaN or an empty text."""
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
    )


def space_of_classes(names: Sequence[str] | None, training: Sequence[str], place: str) -> LabelSpace:
    """The classes: `names` as given, else the sorted values of training. Raises DataError ST122 or ST126."""
    seen = set(training)
    if len(seen) == 1:
        raise DataError(
            "ST122",
            _("all {count} training rows are of one class ({name})").format(count=len(training), name=next(iter(seen))),
            place=place,
            fix=_("there is nothing to learn: check the label column and the split"),
        )
    if names is None and len(seen) > _MANY and len(seen) > len(training) / 2:
        raise DataError(
            "ST126",
            _("{count} different labels in {rows} rows: an id or a measurement?").format(
                count=len(seen), rows=len(training)
            ),
            place=place,
            fix=_("name the column of the class in data.labels"),
        )
    ordered = tuple(unicodedata.normalize("NFC", n) for n in names) if names is not None else sort_classes(seen)
    return LabelSpace(names=ordered, problem="single_label")


def sort_classes(values: Iterable[str]) -> tuple[str, ...]:
    """Classes in order: as whole numbers when all are, else as text."""
    found = list(values)
    if all(value.removeprefix("-").isdecimal() for value in found):
        return tuple(sorted(found, key=int))
    return tuple(sorted(found))


def unknown_class(value: str, space: LabelSpace, place: str, *, declared: bool) -> DataError:
    """The error for a class outside the space, naming the nearest."""
    near = difflib.get_close_matches(value, space.names, n=1, cutoff=0.5)
    if declared:
        fix = (
            _("did you mean {name}?").format(name=near[0])
            if near
            else _("data.label_names are: {names}").format(names=", ".join(space.names[:30]))
        )
        return DataError(
            "ST121", _("the label {value} is not in data.label_names").format(value=repr(value)), place=place, fix=fix
        )
    return DataError(
        "ST125",
        _("the label {value} occurs here but in no training row").format(value=repr(value)),
        place=place,
        fix=(_("did you mean {name}?").format(name=near[0]) + " " if near else "")
        + _("list the classes in data.label_names, or correct the split"),
    )


def require_two_values(names: Sequence[str], rows: Sequence[Sequence[int]], place: str) -> None:
    """Raises DataError ST122 when no label column of training has both a 0 and a 1."""
    sums = [sum(column) for column in zip(*rows, strict=True)]
    if rows and all(total in (0, len(rows)) for total in sums):
        raise DataError(
            "ST122",
            _("every label column is constant over the {count} training rows").format(count=len(rows)),
            place=place,
            fix=_("there is nothing to learn: check the label columns and the split"),
        )
