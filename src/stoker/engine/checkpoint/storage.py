"""The port that checkpoints are written through, so that a test can fail the n-th write, fsync or rename."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MAX_WRITE_BYTES = 1 << 30  # Linux takes at most 2 GiB a call


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeSpace:
    """What an unprivileged process may still write on a mount. `inodes`: None where the file system has no limit."""

    free_bytes: int
    block_bytes: int
    inodes: int | None
    mount: str


class Storage(Protocol):
    """Raw operations; every one may raise OSError. Paths are absolute or relative to the working directory."""

    def make_dir(self, path: Path) -> None: ...

    def create(self, path: Path) -> int:
        """Descriptor of a new file; an existing one is an error."""

    def write(self, descriptor: int, data: memoryview) -> int:
        """Bytes taken, perhaps fewer than given."""

    def fsync(self, descriptor: int) -> None: ...

    def close(self, descriptor: int) -> None: ...

    def fsync_dir(self, path: Path) -> None:
        """Make names in the folder `path` survive a power cut."""

    def rename(self, source: Path, target: Path) -> None: ...

    def remove_tree(self, path: Path) -> None: ...

    def free_space(self, path: Path) -> FreeSpace: ...


class LocalStorage:
    """The file system of the operating system."""

    def make_dir(self, path: Path) -> None:
        path.mkdir()

    def create(self, path: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        return os.open(path, flags, 0o666)

    def write(self, descriptor: int, data: memoryview) -> int:
        return os.write(descriptor, data[:MAX_WRITE_BYTES])

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)
        if hasattr(os, "posix_fadvise"):  # so that reading back asks the disk, not the cache
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def fsync_dir(self, path: Path) -> None:
        if os.name == "nt":  # NTFS journals names itself, and folders cannot be opened
            return
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    def free_space(self, path: Path) -> FreeSpace:
        there = path.resolve()
        while not there.exists():
            there = there.parent
        mount = there
        while not mount.is_mount() and mount != mount.parent:
            mount = mount.parent
        if not hasattr(os, "statvfs"):
            return FreeSpace(free_bytes=shutil.disk_usage(there).free, block_bytes=4096, inodes=None, mount=str(mount))
        facts = os.statvfs(there)
        return FreeSpace(
            free_bytes=facts.f_bavail * facts.f_frsize,
            block_bytes=facts.f_frsize or 4096,
            inodes=facts.f_favail if facts.f_files else None,
            mount=str(mount),
        )


def write_all(storage: Storage, descriptor: int, data: memoryview) -> None:
    """Every byte of `data`, however few the storage takes at a time. Raises OSError."""
    while data:
        taken = storage.write(descriptor, data)
        if taken <= 0:
            raise OSError(5, "the storage takes no bytes")
        data = data[taken:]
