"""Paths as people write them, and files that are written whole or not at all."""

import contextlib
import os
import stat
from pathlib import Path


def expand_home(name: str) -> Path:
    """`name` with a leading `~` or `~user` expanded; as it stands where there is no such home."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def path_exists(path: Path) -> bool:
    """Whether `path` can be reached; False also for what no path can be: a NUL in it, a name that is too long."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def write_whole(file: Path, text: str) -> None:
    """Write `text` as UTF-8 in one rename, links followed. Raises OSError or ValueError.

    What is there and no ordinary file (a pipe, /dev/stdout) is written to, never replaced: as root a rename would put
    an ordinary file in a device's place.
    """
    if path_exists(file) and not stat.S_ISREG(file.stat().st_mode):
        with file.open("w", encoding="utf-8") as stream:
            stream.write(text)
        return
    target = Path(os.path.realpath(file))
    aside = target.with_name(f".{target.name[:200]}.{os.getpid()}")
    try:
        with aside.open("w", encoding="utf-8") as stream:  # the umask decides who may read it, as for any file
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
