"""Folders under the user's cache that are either complete or not there: written aside, then renamed.

`meta.json` holds size and hash of every file; a folder that does not agree with it is thrown away and built again.
"""

import atexit
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.core.codec import dumps, loads
from stoker.core.errors import EnvironmentProblem
from stoker.core.i18n import _
from stoker.core.paths import write_whole
from stoker.data.files import hash_file
from stoker.data.notices import Notice

_META = "meta.json"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A complete folder, what its meta.json says, and whether it was there before."""

    folder: Path
    content: Mapping[str, Any]
    reused: bool
    notices: tuple[Notice, ...] = ()


def cache_root() -> Path:
    """`stoker` in the user's cache folder (XDG_CACHE_HOME, or the system's own)."""
    import platformdirs

    return Path(platformdirs.user_cache_path("stoker", appauthor=False))


def cache_key(*parts: Any) -> str:
    """A name for a folder whose content is a function of `parts`."""
    return hashlib.blake2b(dumps(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def open_or_build(kind: str, key: str, build: Callable[[Path], Mapping[str, Any]]) -> CacheEntry:
    """The folder `kind/key` of the cache; where it is missing or damaged, `build(folder)` fills it and returns what
    meta.json is to say. Where the cache cannot be written, a temporary folder serves and a notice says so."""
    notices: list[Notice] = []
    folder = cache_root() / kind / key
    try:
        content = read_entry(folder)
        if content is not None:
            return CacheEntry(folder, content, True)
        if folder.exists():
            shutil.rmtree(folder)
            notices.append(Notice("ST171", _("a damaged cache was thrown away and built again")))
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=folder.parent))
    except OSError as error:
        return _elsewhere(folder, build, error, notices)
    try:
        content = _fill(aside, build)
    except BaseException as error:
        shutil.rmtree(aside, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return _elsewhere(folder, build, error, notices)
        raise
    return CacheEntry(_put(aside, folder), content, False, tuple(notices))


def _elsewhere(
    folder: Path, build: Callable[[Path], Mapping[str, Any]], error: OSError, notices: Sequence[Notice]
) -> CacheEntry:
    """The entry in a temporary folder. Raises EnvironmentProblem ST503 where that takes no files either."""
    why = _("the cache {folder} cannot be used ({error}): tokens go to a temporary folder").format(
        folder=folder.parent, error=os.strerror(error.errno) if error.errno else error
    )
    aside: Path | None = None
    try:
        aside = Path(tempfile.mkdtemp(prefix="stoker-tokens-"))
        atexit.register(_remove_as, os.getpid(), aside)  # nobody finds it again, so it would stay for good
        content = _fill(aside, build)
    except OSError as again:
        if aside is not None and again.errno not in _NO_ROOM:
            raise
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
        raise EnvironmentProblem(
            "ST503",
            _("neither the cache nor the temporary folder takes the tokens: {error}").format(
                error=os.strerror(again.errno) if again.errno else again
            ),
            place=str(aside or "TMPDIR"),
            fix=_("make room, or set XDG_CACHE_HOME to a folder on a larger disk"),
        ) from again
    return CacheEntry(aside, content, False, (*notices, Notice("ST170", why)))


def _remove_as(pid: int, folder: Path) -> None:
    """Remove `folder` at the exit of process `pid`; a forked loader that ends first still needs it elsewhere."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def read_entry(folder: Path) -> Mapping[str, Any] | None:
    """What meta.json of a complete folder says; None when the folder is missing, torn or changed."""
    try:
        meta = loads((folder / _META).read_text(encoding="utf-8"))
        for name, (size, digest) in meta["files"].items():
            file = folder / Path(name).name
            if file.stat().st_size != size or hash_file(file) != digest:
                return None
        content: Mapping[str, Any] = meta["content"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return content


def _fill(folder: Path, build: Callable[[Path], Mapping[str, Any]]) -> Mapping[str, Any]:
    content = build(folder)
    files = {f.name: [f.stat().st_size, hash_file(f)] for f in sorted(folder.iterdir())}
    for name in files:
        _sync(folder / name)
    write_text(folder / _META, dumps({"files": files, "content": content}))
    loaded: Mapping[str, Any] = loads((folder / _META).read_text(encoding="utf-8"))["content"]
    return loaded


def write_text(file: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    write_whole(file, text)


def _sync(file: Path) -> None:
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


def _put(aside: Path, folder: Path) -> Path:
    try:
        aside.rename(folder)
    except OSError:  # another process was first, and its folder is as good
        if read_entry(folder) is None:
            return aside
        shutil.rmtree(aside, ignore_errors=True)
    return folder
