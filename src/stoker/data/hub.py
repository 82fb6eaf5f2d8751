"""Data sets and models named by hub id: found in the local Hugging Face cache; fetched only by `check --download`."""

import os
import re
from dataclasses import replace
from pathlib import Path

from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.paths import expand_home, path_exists
from stoker.data.files import TABLE_SUFFIXES, resolve_path

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_MODEL_FILES = ("*.safetensors", "*.json", "*.jinja", "vocab.txt", "merges.txt", "*.model")
_DATA_FILES = tuple(f"*{suffix}" for suffix in TABLE_SUFFIXES)


def is_hub_id(name: str) -> bool:
    """Whether `name` has the form owner/name of a hub repository (and no data file's suffix)."""
    return bool(_HUB_ID.fullmatch(name)) and not name.lower().endswith(TABLE_SUFFIXES)


def hub_cache() -> Path:
    """Where huggingface_hub keeps repositories: HF_HUB_CACHE, HF_HOME/hub, or under the user's cache folder."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return expand_home(named)
    base = expand_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return expand_home(os.environ.get("HF_HOME") or str(base)) / "hub"


def snapshot_folder(repo: str, kind: str) -> Path | None:
    """The newest snapshot of a `models` or `datasets` repository in the local cache, or None."""
    root = hub_cache() / f"{kind}--{repo.replace('/', '--')}"
    main = root / "refs" / "main"
    if main.is_file():
        named = root / "snapshots" / main.read_text(encoding="utf-8").strip()
        if named.is_dir():
            return named
    found = sorted((root / "snapshots").glob("*"), key=lambda p: p.stat().st_mtime) if root.is_dir() else []
    return found[-1] if found else None


def local_source(job: Job) -> Job:
    """`job` with a hub data set replaced by its files in the local cache. Raises DataError ST180 where it is absent."""
    name = job.data.train
    if name is None or not is_hub_id(name) or path_exists(resolve_path(job, name)):
        return job
    folder = snapshot_folder(name, "datasets")
    if folder is None:
        raise DataError(
            "ST180",
            _("the file or hub data set {name} is not here").format(name=name),
            place=f"{job.source_path} data.train".strip(),
            fix=_("check the path; a hub data set is fetched by `stoker check JOB --download`"),
        )
    files = {split: _file_of(folder, words) for split, words in _WORDS.items()}
    if files["train"] is None:
        raise DataError(
            "ST180",
            _("the hub data set {name} has no single training file").format(name=name),
            place=str(folder),
            fix=_("name one of its files in data.train"),
        )
    data = job.data
    has_split = data.eval is not None or data.eval_frac is not None or data.split is not None
    return replace(
        job,
        data=replace(
            data,
            train=files["train"],
            eval=data.eval if has_split else files["eval"],
            test=data.test if has_split else data.test or files["test"],
        ),
    )


_WORDS = {"train": ("train",), "eval": ("valid", "dev", "eval"), "test": ("test",)}


def _file_of(folder: Path, words: tuple[str, ...]) -> str | None:
    """The one table whose name starts like one of `words`; for train also the only table there is."""
    tables = sorted(p for p in folder.rglob("*") if p.suffix.lower() in TABLE_SUFFIXES and p.stem != "dataset_infos")
    named = [p for p in tables if p.stem.lower().startswith(words)]
    found = named or (tables if words == _WORDS["train"] and len(tables) == 1 else [])
    return str(found[0]) if len(found) == 1 else None


def download(repo: str, kind: str) -> Path:
    """Fetch a `models` or `datasets` repository into the Hugging Face cache: no pickle, no code.

    Raises DataError ST181 when it cannot be reached or huggingface_hub is missing.
    """
    try:
        from huggingface_hub import snapshot_download

        return Path(
            snapshot_download(
                repo,
                repo_type="dataset" if kind == "datasets" else "model",
                allow_patterns=list(_DATA_FILES if kind == "datasets" else _MODEL_FILES),
            )
        )
    except Exception as error:  # HTTP, offline, gated, missing: huggingface_hub has a dozen kinds
        raise DataError(
            "ST181",
            _("{repo} cannot be fetched: {error}").format(
                repo=repo, error=(str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            ),
            place="--download",
            fix=_("check the name, the network, HF_HUB_OFFLINE, and HF_TOKEN for gated models"),
        ) from error
