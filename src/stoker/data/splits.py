"""Which rows train, which validate, which test: separate files, a column, or a share held out by the seed."""

import hashlib
from collections.abc import Sequence

from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.data.drafts import DUPLICATE, Draft, draft_rows, text_columns
from stoker.data.files import resolve_path
from stoker.data.labels import label_columns
from stoker.data.table import Table, compose_name, read_table
from stoker.data.tokenizer import TextTokenizer

SPLITS = ("train", "eval", "test")
SPELLINGS = {
    **dict.fromkeys(("train", "training", "tr", "trn", "학습", "훈련"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev", "eval", "evaluation", "검증"), "eval"),
    **dict.fromkeys(("test", "testing", "tst", "평가", "시험"), "test"),
}


def job_columns(job: Job) -> tuple[str, ...]:
    """Every column that the job reads from its tables."""
    split = (job.data.split,) if job.data.split else ()
    return tuple(dict.fromkeys((*text_columns(job), *label_columns(job), *split)))


def read_splits(job: Job, tokenizer: TextTokenizer | None) -> dict[str, Draft]:
    """The drafts of train and, where the job has them, eval and test. Raises DataError for any unreadable row."""
    drafts: dict[str, Draft] = {}
    columns = job_columns(job)
    train = read_table(resolve_path(job, job.data.train or ""), columns, encoding=job.data.encoding)
    if job.data.split is not None:
        for name, positions in split_positions(train, job.data.split).items():
            drafts[name] = draft_rows(job, train, positions, name, tokenizer)
    else:
        drafts["train"] = draft_rows(job, train, range(train.num_rows), "train", tokenizer)
    others = tuple(name for name in columns if name != job.data.split)
    for name, file in (("eval", job.data.eval), ("test", job.data.test)):
        if file is not None:
            table = read_table(resolve_path(job, file), others, encoding=job.data.encoding)
            drafts[name] = draft_rows(job, table, range(table.num_rows), name, tokenizer)
    for draft in drafts.values():
        _require_rows(draft)
    if job.data.drop_duplicates:
        drafts["train"] = without_duplicates(drafts["train"])
    if job.data.eval_frac is not None:
        drafts["train"], drafts["eval"] = hold_out(job, drafts["train"])
    return {name: drafts[name] for name in SPLITS if name in drafts}


def _require_rows(draft: Draft) -> None:
    if len(draft):
        return
    why = ", ".join(f"{reason} {count}" for reason, count in draft.dropped.items()) or _("no row")
    raise DataError(
        "ST130",
        _("no row is left in {name} ({why})").format(name=draft.name, why=why),
        place=str(draft.table.file),
        fix=_("check the columns named under data, and the split"),
    )


def split_positions(table: Table, column: str) -> dict[str, list[int]]:
    """Row positions of each split by the words in `column`. Raises DataError ST132 or ST133."""
    found: dict[str, list[int]] = {}
    for position, value in enumerate(table.columns[compose_name(column)]):
        name = SPELLINGS.get(str(value).strip().lower())
        if name is None:
            raise DataError(
                "ST132",
                _("{value} is no split").format(value=repr(value)[:40]),
                place=table.place(position, column),
                fix=_("write train, valid or test"),
            )
        found.setdefault(name, []).append(position)
    if "train" not in found:
        raise DataError(
            "ST133",
            _("no row says train"),
            place=f"{table.file} {column}",
            fix=_("mark the training rows with train"),
        )
    return found


def without_duplicates(draft: Draft) -> Draft:
    """`draft` with only the first of samples of equal text, the others counted as dropped."""
    seen: set[int] = set()
    kept = []
    for i, key in enumerate(draft.text_keys()):
        if key not in seen:
            seen.add(key)
            kept.append(i)
    result = draft.chosen(kept, draft.name)
    result.num_rows, result.dropped, result.composed = draft.num_rows, dict(draft.dropped), draft.composed
    if len(kept) < len(draft):
        result.drop(DUPLICATE, len(draft) - len(kept))
    return result


def hold_out(job: Job, draft: Draft) -> tuple[Draft, Draft]:
    """(train, eval) with data.eval_frac of the samples held out by train.seed.

    Samples of equal text stay together, so that nothing leaks; with a single label each class gives its share.
    The choice depends on seed and texts alone, not on the order of the rows.
    """
    keys = draft.text_keys()
    classes: Sequence[str] = draft.labels if job.task != "causal_lm" and job.problem == "single_label" else ()
    held = held_out(keys, classes, job.data.eval_frac or 0.0, job.train.seed)
    train = draft.chosen([i for i in range(len(draft)) if i not in held], "train")
    evaluation = draft.chosen(sorted(held), "eval")
    train.num_rows, train.dropped, train.composed = draft.num_rows - len(held), draft.dropped, draft.composed
    if not len(train) or not len(evaluation):
        raise DataError(
            "ST133",
            _("{count} samples of {distinct} distinct texts cannot be split by eval_frac {frac}").format(
                count=len(draft), distinct=len(set(keys)), frac=job.data.eval_frac
            ),
            place=f"{draft.table.file} data.eval_frac",
            fix=_("give more distinct rows, or a validation file in data.eval"),
        )
    return train, evaluation


def held_out(keys: Sequence[int], classes: Sequence[str], share: float, seed: int) -> set[int]:
    """Positions held out: groups of equal key in the order of a seeded hash, until each class has its share."""
    groups: dict[int, list[int]] = {}
    for i, key in enumerate(keys):
        groups.setdefault(key, []).append(i)
    strata: dict[str, list[int]] = {}
    for key, members in groups.items():
        strata.setdefault(classes[members[0]] if classes else "", []).append(key)
    held: set[int] = set()
    for members_of_class in strata.values():
        ordered = sorted(members_of_class, key=lambda key: _order(seed, key))
        total = sum(len(groups[key]) for key in ordered)
        wanted, taken = round(total * share), 0
        for key in ordered[:-1]:  # a class never leaves training altogether
            if taken >= wanted:
                break
            held.update(groups[key])
            taken += len(groups[key])
    if not held and len(groups) > 1:
        first = min((key for keys_of in strata.values() if len(keys_of) > 1 for key in keys_of), default=None)
        held.update(groups[first] if first is not None else ())
    return held


def _order(seed: int, key: int) -> bytes:
    return hashlib.blake2b(f"{seed} {key}".encode(), digest_size=8).digest()
