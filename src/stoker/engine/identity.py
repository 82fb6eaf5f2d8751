"""Which job a run folder belongs to: everything that changes what is learned, as a flat table, and its hash.

Files count by content, never by path: a run goes on after its data moved, and not after its rows changed. What only
plans, prices, saves or tracks does not count.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stoker.core.codec import dumps, encode
from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.run_config import RunConfig
from stoker.data.files import hash_file
from stoker.data.images import ImageSplit
from stoker.data.prepared import PreparedData, Split

_SECTIONS = ("task", "problem", "data", "tune", "train")
_BY_CONTENT = ("data.train", "data.eval", "data.test")
_DECLARED = ("num_samples", "num_eval_samples", "tokens_mean", "tokens_p99", "tokens_max")
_SHOWN = 6  # differences named in one message
_SHOWN_CHARACTERS = 60


def learning_facts(job: Job, config: RunConfig, data: PreparedData) -> dict[str, Any]:
    """Dotted key -> value of everything that changes the learning; content digests where the job names files."""
    facts: dict[str, Any] = {}
    for section in _SECTIONS:
        facts |= dict(_leaves(section, encode(getattr(job, section))))
    for name in (*_BY_CONTENT, *(f"data.{key}" for key in _DECLARED)):
        facts.pop(name, None)
    local = isinstance(job.model, str) and (Path(job.base_dir) / job.model).exists()
    facts["model"] = Path(str(job.model)).name if local else encode(job.model)
    facts["tokenizer"] = data.tokenizer.fingerprint if data.tokenizer is not None else None
    facts["precision"] = config.precision
    for name, split in data.splits.items():
        facts[f"data.{name}"] = f"{len(split)} x {_content(split)}"
    return facts


def fingerprint(facts: Mapping[str, Any]) -> str:
    """Hash of `learning_facts`."""
    return hashlib.sha256(dumps(facts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def differences(past: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """`key: before -> now` of each fact that differs, in order of keys."""
    keys = sorted(key for key in past.keys() | now.keys() if past.get(key) != now.get(key))
    return [f"{key}: {_short(past.get(key))} -> {_short(now.get(key))}" for key in keys]


def other_job(place: str, past: Any, now: Mapping[str, Any]) -> RunError:
    """The error for a run folder that another job filled; `past`: its facts, where they are known."""
    named = differences(past, now) if isinstance(past, Mapping) else []
    problem = _("this run folder belongs to another job: model, data, tuning, training or precision differ")
    if named:
        more = len(named) - _SHOWN
        text = "; ".join(named[:_SHOWN]) + (_("; {count} more").format(count=more) if more > 0 else "")
        problem = _("this run folder belongs to another job: {differences}").format(differences=text)
    return RunError(
        "ST403",
        problem,
        place=place,
        fix=_("choose another folder with --out; runs are never mixed"),
    )


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner)
    else:
        yield name, value


def _content(split: Split) -> str:
    """Digest of a split's source; of images the names, sizes and targets, since they may be many gigabytes."""
    if not isinstance(split, ImageSplit):
        return hash_file(Path(split.data_file))[:16]
    digest = hashlib.blake2b(digest_size=8)
    for i, path in enumerate(split.paths):
        file = Path(path)
        digest.update(dumps([file.name, file.stat().st_size, split.target(i)]).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _short(value: Any) -> str:
    text = dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
