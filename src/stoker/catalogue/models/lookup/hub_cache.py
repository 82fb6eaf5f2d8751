"""The Hugging Face cache on this machine, read without huggingface_hub and without the network.

Layout: huggingface_hub's documentation, "Understand caching": models--ORG--NAME/{refs/main, snapshots/COMMIT}.
"""

import os
import re
from pathlib import Path

from stoker.core.paths import expand_home

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]{0,95}(/[A-Za-z0-9][\w.\-]{0,95})?")
_COMMIT = re.compile(r"[0-9A-Za-z._\-]{1,80}")


def looks_like_hub_id(name: str) -> bool:
    """Whether `name` has the form of a hub id: `org/name`, or one word."""
    return bool(_HUB_ID.fullmatch(name)) and ".." not in name


def cache_folder() -> Path:
    """Where huggingface_hub keeps repositories: HF_HUB_CACHE, HF_HOME/hub, or under the user's cache folder."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return expand_home(os.environ[variable])
    if os.environ.get("HF_HOME"):
        return expand_home(os.environ["HF_HOME"]) / "hub"
    return expand_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def cached_snapshot(hub_id: str) -> Path | None:
    """The snapshot folder of `hub_id` (branch main, else the newest) that has a config.json, or None."""
    if not looks_like_hub_id(hub_id):
        return None
    repository = cache_folder() / ("models--" + hub_id.replace("/", "--"))
    snapshots = repository / "snapshots"
    try:
        commit = (repository / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        commit = ""
    if _COMMIT.fullmatch(commit) and commit not in (".", "..") and (snapshots / commit / "config.json").is_file():
        return snapshots / commit
    try:
        folders = [folder for folder in snapshots.iterdir() if (folder / "config.json").is_file()]
    except OSError:
        return None
    return max(folders, key=lambda folder: folder.stat().st_mtime, default=None)
