"""The data profile kept between commands: `check` and `run` measure it, `plan` finds it without reading the data.

The key is the job's data section with path, size and modification time of every file it names, and the tokenizer's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker.core.codec import decode, dumps, encode, loads
from stoker.core.job import Job
from stoker.core.plan import ResolvedModel
from stoker.core.profile import DataProfile
from stoker.data.cache import cache_key, cache_root, write_text
from stoker.data.files import file_identity, resolve_path
from stoker.data.image_files import folder_identity
from stoker.data.seq_limit import embedding_rows
from stoker.data.tokenizer import tokenizer_files, tokenizer_path

_VERSION = 2


def profile_key(job: Job, model: ResolvedModel) -> str:
    """The name of this job's profile. The cut at seq_len is no part of it: lengths are kept uncut. The embedding's rows
    are: that the vocabulary fits them was checked when the profile was made."""
    identities = []
    for name in (job.data.train, job.data.eval, job.data.test):
        if name is not None:
            path = resolve_path(job, name)
            identities.append(folder_identity(path) if path.is_dir() else file_identity(path))
    tokenizer = None if job.task == "image_classification" else tokenizer_path(job, model)
    if tokenizer is not None:
        identities.extend(file_identity(file) for file in tokenizer_files(tokenizer))
    settings = (job.task, job.problem, job.train.seed, embedding_rows(model.config), encode(job.data))
    return cache_key("profile", _VERSION, settings, identities)


def remember_profile(job: Job, model: ResolvedModel, profile: DataProfile, *, sampled: bool) -> None:
    """Keep `profile`; a cache that cannot be written is no error."""
    file = _file(job, model)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, dumps({"profile": profile, "sampled": sampled}))
    except OSError:
        return


def recall_profile(job: Job, model: ResolvedModel) -> tuple[DataProfile, bool] | None:
    """(profile, whether it is of a sample) kept for this job and these files, or None."""
    try:
        kept: Mapping[str, Any] = loads(_file(job, model).read_text(encoding="utf-8"))
        profile: DataProfile = decode(DataProfile, kept["profile"])
        return profile, bool(kept["sampled"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _file(job: Job, model: ResolvedModel) -> Path:
    return cache_root() / "profiles" / f"{profile_key(job, model)}.json"
