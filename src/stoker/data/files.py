"""Finding data files and refusing what is none: FIFOs, devices, /proc, loops of links, folders.

A name may be stored composed (NFC) or decomposed (NFD, as macOS writes it): whichever exists is opened (case 59).
"""

import difflib
import hashlib
import os
import stat
import unicodedata
from pathlib import Path

from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.paths import expand_home

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_FORBIDDEN_ROOTS = ("/proc/", "/sys/", "/dev/")
_BLOCK_BYTES = 1 << 20


def resolve_path(job: Job, name: str) -> Path:
    """`name` of the job file as a path: absolute, or relative to the job file's folder; in the form that exists."""
    return find_existing(Path(job.base_dir) / expand_home(name))


def find_existing(path: Path) -> Path:
    """`path` in whichever Unicode form (NFC or NFD, part by part) exists on disk; `path` itself when none does."""
    if os.path.lexists(path) or "\0" in str(path):
        return path
    found = Path(path.anchor) if path.anchor else Path()
    for part in path.parts[1:] if path.anchor else path.parts:
        found = _existing_child(found, part)
    return found if os.path.lexists(found) else path


def _existing_child(folder: Path, name: str) -> Path:
    direct = folder / name
    if name.isascii() or os.path.lexists(direct):
        return direct
    wanted = unicodedata.normalize("NFC", name)
    try:
        same = [entry for entry in os.listdir(folder) if unicodedata.normalize("NFC", entry) == wanted]  # noqa: PTH208
    except OSError:
        return direct
    return folder / same[0] if same else direct


def real_path(path: Path) -> Path:
    """`path` with links followed. Raises DataError ST102 for a loop, or for a target under /proc, /sys or /dev."""
    try:
        real = path.resolve(strict=True)
    except FileNotFoundError:
        raise missing_file(path) from None
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop, before 3.13; ValueError: a NUL
        raise DataError(
            "ST102",
            _("cannot be followed: {error}").format(error=getattr(error, "strerror", None) or error),
            place=str(path),
            fix=_("name the file itself"),
        ) from error
    if str(real).startswith(_FORBIDDEN_ROOTS):
        raise DataError(
            "ST102",
            _("lies in a system folder ({real})").format(real=real),
            place=str(path),
            fix=_("name an ordinary file"),
        )
    return real


def regular_file(path: Path) -> Path:
    """`path` when it is an ordinary readable file. Raises DataError ST101 (missing) or ST102 (something else)."""
    real = real_path(path)
    mode = real.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = _("a folder") if stat.S_ISDIR(mode) else _("a pipe, socket or device")
        raise DataError(
            "ST102",
            _("is {kind}, not a file").format(kind=kind),
            place=str(path),
            fix=_("name a csv, tsv, jsonl or parquet file"),
        )
    if not os.access(real, os.R_OK):
        raise DataError("ST102", _("may not be read"), place=str(path), fix=_("check the file's permissions"))
    return real


def missing_file(path: Path) -> DataError:
    """The error for a path that does not exist, naming the nearest name beside it."""
    try:
        names = sorted(entry.name for entry in path.parent.iterdir() if entry.name != path.name)
    except (OSError, ValueError):
        names = []
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    return DataError(
        "ST101",
        _("there is no such file"),
        place=str(path),
        fix=_("did you mean {name}?").format(name=near[0])
        if near
        else _("check the path; paths are relative to the job file's folder"),
    )


def hash_file(path: Path) -> str:
    """BLAKE2b-128 of the file's bytes, in hexadecimal."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def file_bytes(path: Path) -> int:
    """Size in bytes, 0 for what cannot be reached: a sample's concern, `check` names it."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def file_identity(path: Path) -> str:
    """Path, size and modification time: what changes when a file is written again, without reading it."""
    try:
        facts = path.stat()
    except (OSError, ValueError):
        return f"{path} missing"
    return f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}"
