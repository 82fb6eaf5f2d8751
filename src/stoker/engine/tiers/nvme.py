"""Flash as a tier: one scratch file, read and written past the page cache by a few threads, every byte counted.

`os.preadv` and `os.pwritev` with O_DIRECT saturate a disk; where a file system refuses O_DIRECT (tmpfs) plain calls do.
The file loses its name as soon as it is open: a kill leaves nothing behind. Space is checked and reserved before
step 1. An error, or a request that does not come back, is told by name; it never becomes a silent wrong number.
"""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any, Protocol

import torch

from stoker.core.errors import RunError
from stoker.core.human import format_bytes
from stoker.core.i18n import _
from stoker.engine.tiers.lanes import Mark

_THREADS = 8
_KEEP_FREE_BYTES = 256 << 20


class FlashPort(Protocol):
    """The system calls, so that a test can fail or slow the n-th. Each may raise OSError."""

    def open(self, path: Path, num_bytes: int) -> int:
        """Descriptor of a new file with `num_bytes` reserved."""

    def read(self, descriptor: int, data: memoryview, offset: int) -> int: ...

    def write(self, descriptor: int, data: memoryview, offset: int) -> int: ...

    def close(self, descriptor: int) -> None: ...

    def free_bytes(self, folder: Path) -> int: ...


class LocalFlash:
    """The operating system's file system."""

    def open(self, path: Path, num_bytes: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        try:
            descriptor = os.open(path, flags | getattr(os, "O_DIRECT", 0), 0o600)
        except OSError:  # a file system without O_DIRECT has made the name already
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            descriptor = os.open(path, flags, 0o600)
        try:
            path.unlink()
            if num_bytes:
                os.posix_fallocate(descriptor, 0, num_bytes)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def read(self, descriptor: int, data: memoryview, offset: int) -> int:
        return os.preadv(descriptor, [data], offset)

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        return os.pwritev(descriptor, [data], offset)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def free_bytes(self, folder: Path) -> int:
        facts = os.statvfs(folder)
        return facts.f_bavail * facts.f_frsize


class FlashFile:
    """`num_bytes` in `folder`. Offsets and sizes are multiples of 4096 and buffers start at a page.

    `read_bytes`, `written_bytes`: so far. `stuck_s`: a request that takes longer ends the run; `slow_s`: is told to
    `notice`, once. Raises RunError ST461 where there is no room, ST462 where the disk fails.
    """

    def __init__(
        self,
        folder: Path,
        num_bytes: int,
        *,
        budget_bytes: int | None = None,
        port: FlashPort | None = None,
        notice: Callable[[str], None] | None = None,
        slow_s: float = 30.0,
        stuck_s: float = 300.0,
    ) -> None:
        self.folder, self.num_bytes = folder, num_bytes
        self.read_bytes = self.written_bytes = 0
        self._port: FlashPort = port or LocalFlash()
        self._notice, self._slow_s, self._stuck_s = notice or (lambda _text: None), slow_s, stuck_s
        self._told = False
        self._lock = threading.Lock()
        self._require_room(budget_bytes)
        try:
            self._descriptor = self._port.open(folder / f".stoker-tier-{os.getpid()}-{secrets.token_hex(4)}", num_bytes)
        except OSError as error:
            raise self._failed(error) from error
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="stoker-flash")

    def read(self, offset: int, target: torch.Tensor, *, after: "Future[None] | None" = None) -> "Future[None]":
        """Fill `target` (uint8, host) from `offset`, once the write `after` is done."""
        return self._pool.submit(self._transfer, self._port.read, offset, target, after, None)

    def write(self, offset: int, source: torch.Tensor, *, after: Mark | None = None) -> "Future[None]":
        """Write `source` (uint8, host) to `offset` once `after`, which fills it, has passed."""
        return self._pool.submit(self._transfer, self._port.write, offset, source, None, after)

    def wait(self, request: "Future[None]") -> None:
        """Until `request` is done. Raises RunError ST462 for its failure, or when the disk does not answer."""
        started = time.monotonic()
        while True:
            waited = time.monotonic() - started
            try:
                request.result(timeout=max(0.0, min(self._slow_s, self._stuck_s - waited)))
                return
            except FutureTimeout as error:
                if request.done():
                    raise self._failed(OSError(110, "timed out")) from error
                waited = time.monotonic() - started
                if waited >= self._stuck_s:
                    raise self._failed(
                        OSError(110, _("no answer for {seconds:.0f} s").format(seconds=waited))
                    ) from error
                if not self._told:
                    self._told = True
                    self._notice(
                        _("the disk of {folder} has not answered for {seconds:.0f} s: storage slow or stuck").format(
                            folder=self.folder, seconds=waited
                        )
                    )
            except OSError as error:
                raise self._failed(error) from error

    def close(self) -> None:
        """Give the space back; requests under way are waited for."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        with contextlib.suppress(OSError):
            self._port.close(self._descriptor)

    def _transfer(
        self,
        call: Callable[[int, memoryview, int], int],
        offset: int,
        tensor: torch.Tensor,
        earlier: "Future[None] | None",
        mark: Mark | None,
    ) -> None:
        if earlier is not None:
            earlier.result()
        if mark is not None:
            mark.synchronize()
        view: Any = tensor.numpy().data
        while view:
            done = call(self._descriptor, view, offset)
            if done <= 0:
                raise OSError(5, "the disk gives or takes no bytes")
            view, offset = view[done:], offset + done
            with self._lock:
                if call == self._port.read:
                    self.read_bytes += done
                else:
                    self.written_bytes += done

    def _require_room(self, budget_bytes: int | None) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            free = self._port.free_bytes(self.folder)
        except OSError as error:
            raise self._failed(error) from error
        limit = min(free - _KEEP_FREE_BYTES, budget_bytes if budget_bytes is not None else free)
        if self.num_bytes > limit:
            raise RunError(
                "ST461",
                _("the flash tier needs {wanted}; {limit} may be used in {folder}").format(
                    wanted=format_bytes(self.num_bytes), limit=format_bytes(max(0, limit)), folder=self.folder
                ),
                place="hardware.nvme",
                fix=_("free space there, name another folder, or give more DRAM"),
            )

    def _failed(self, error: OSError) -> RunError:
        return RunError(
            "ST462",
            _("the flash tier failed: {error}").format(error=error.strerror or error),
            place=str(self.folder),
            fix=_("mend the disk or name another folder; the same command resumes from the last checkpoint"),
        )
