"""What this process may use of the machine: cores by affinity and cgroup, memory by cgroup, /dev/shm, disk. Bytes.

Linux cgroups v1 and v2 are read from /proc and /sys/fs/cgroup, every ancestor counted, since the tightest binds; a
container often sees only its own as the root. Elsewhere the operating system's totals stand alone.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.core.i18n import _
from stoker.observe.reading import Reading

_NO_LIMIT_BYTES = 1 << 60  # v1 writes a number near 2^63 for "none"
_CGROUP = Path("sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupMemory:
    """`limit_bytes` and what is left under the tightest ancestor (page cache that can be dropped counts as left)."""

    limit_bytes: Reading
    available_bytes: Reading


def num_cores(root: Path = Path("/")) -> int:
    """Cores that this process may keep busy: affinity, and the cgroup's CPU quota rounded up; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_cpus(root).value
    return max(1, min(cores, -(-int(quota * 1000) // 1000) if quota else cores))


def cgroup_cpus(root: Path = Path("/")) -> Reading:
    """CPU quota in cores."""
    quotas = []
    for folder in _cgroup_folders(root, "cpu"):
        words = (_text(folder / "cpu.max") or "").split()
        if not words:
            words = [(_text(folder / name) or "").strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[0]) and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return Reading(min(quotas)) if quotas else Reading.missing(_("no cgroup quota"))


def cgroup_memory(root: Path = Path("/")) -> CgroupMemory:
    """Memory limit of this process's cgroups, and what is left of it."""
    limits, left = [], []
    for folder in _cgroup_folders(root, "memory"):
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        if limit is None or limit >= _NO_LIMIT_BYTES:
            continue
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes") or 0
        limits.append(limit)
        left.append(max(0, limit - max(0, used - _droppable(folder))))
    if not limits:
        none = Reading.missing(_("no cgroup limit"))
        return CgroupMemory(limit_bytes=none, available_bytes=none)
    return CgroupMemory(limit_bytes=Reading(min(limits)), available_bytes=Reading(min(left)))


def host_memory_bytes(root: Path = Path("/")) -> tuple[Reading, Reading]:
    """(total, available) memory of the host; available is what can be had without swapping."""
    rows = dict(line.split(":", 1) for line in (_text(root / "proc/meminfo") or "").splitlines() if ":" in line)
    try:
        return Reading(_kib(rows["MemTotal"])), Reading(_kib(rows["MemAvailable"]))
    except (KeyError, ValueError, IndexError):
        pass
    try:
        import psutil

        memory = psutil.virtual_memory()
    except (ImportError, OSError) as error:
        missing = Reading.missing(_("the memory size cannot be read: {error}").format(error=error))
        return missing, missing
    return Reading(memory.total), Reading(memory.available)


def usable_memory_bytes(root: Path = Path("/")) -> Reading:
    """Memory that this process can still get: the least of the host's available and the cgroup's rest."""
    available = host_memory_bytes(root)[1]
    rest = cgroup_memory(root).available_bytes.value
    if available.value is None or rest is None:
        return available if rest is None else Reading(rest)
    return Reading(min(available.value, rest))


def shared_memory_bytes(root: Path = Path("/")) -> Reading:
    """Size of /dev/shm, through which loader processes hand over batches (case 28)."""
    return disk_total_bytes(root / "dev/shm")


def disk_total_bytes(folder: Path) -> Reading:
    """Size of the file system that holds `folder`."""
    try:
        return Reading(shutil.disk_usage(folder).total)
    except OSError as error:
        return Reading.missing(f"{folder}: {error.strerror}")


def disk_free_bytes(folder: Path) -> Reading:
    """Free bytes for this user where `folder` is, or would be made."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        return Reading(shutil.disk_usage(there).free)
    except OSError as error:
        return Reading.missing(f"{there}: {error.strerror}")


def _cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's cgroup and its ancestors for `controller`, v1 and v2, those that exist."""
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        number, _colon, rest = line.partition(":")
        names, _colon, path = rest.partition(":")
        if number == "0" and not names:
            tops = [root / _CGROUP, root / _CGROUP / "unified"]
        elif controller in names.split(","):
            tops = [root / _CGROUP / controller, root / _CGROUP / names]
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for top in dict.fromkeys(tops):
            for depth in range(len(parts), -1, -1):
                folder = top.joinpath(*parts[:depth])
                if folder.is_dir():
                    yield folder


def _droppable(folder: Path) -> int:
    """Bytes of file pages that the kernel drops under pressure."""
    rows = dict(line.split() for line in (_text(folder / "memory.stat") or "").splitlines() if len(line.split()) == 2)
    prefix = "total_" if "total_inactive_file" in rows else ""
    return int(rows.get(prefix + "inactive_file", 0)) + int(rows.get(prefix + "active_file", 0))


def _number(path: Path) -> int | None:
    text = (_text(path) or "").strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _kib(cell: str) -> int:
    return int(cell.split()[0]) * 1024
