"""One stoker in a run folder at a time. The kernel's lock decides, so that a dead process holds nothing; the file says
who holds it: pid, host, start. Each taking gets a number and a token of its own, by which a writer that was stopped
for a while finds out that another took over (`check`).
"""

import contextlib
import datetime
import json
import os
import secrets
import socket
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stoker.core.errors import RunError
from stoker.core.i18n import _

LOCK_NAME = ".lock"
_MAX_BYTES = 4096
_held: "weakref.WeakSet[RunLock]" = weakref.WeakSet()


class RunLock:
    """The lock of `run_dir` (made if missing), taken by `acquire` or `with`. Raises RunError ST453, ST454."""

    def __init__(self, run_dir: Path | str) -> None:
        self.path = Path(run_dir) / LOCK_NAME
        self.number = 0
        self._token = ""
        self._fd = -1

    def acquire(self) -> Self:
        """Take the lock or raise RunError ST453 naming the holder's pid and host."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        except OSError as error:
            raise self._not_writable(error) from error
        holder = self._read()
        if not self._take(holder):
            self._drop()
            raise self._in_use(holder)
        former = self._read().get("number")
        self.number = (former if isinstance(former, int) else 0) + 1
        self._token = secrets.token_hex(8)
        try:
            self._write(
                {
                    "pid": os.getpid(),
                    "host": socket.gethostname(),
                    "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                    "number": self.number,
                    "token": self._token,
                }
            )
        except OSError as error:
            self._drop()
            raise self._not_writable(error) from error
        _held.add(self)
        return self

    def check(self) -> None:
        """Raises RunError ST456 when the lock is no longer this one's: nothing may be committed then."""
        try:
            current = json.loads(self.path.read_text(encoding="utf-8")).get("token")
        except (OSError, ValueError, AttributeError):
            current = None
        if self._fd < 0 or current != self._token:
            raise RunError(
                "ST456",
                _("another process took over this run folder while this one was stopped"),
                place=str(self.path.parent),
                fix=_("leave the run to that process; nothing was overwritten"),
            )

    def release(self) -> None:
        """Give the lock back; the file stays, since deleting it would race with the next one's taking."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            self._write({"number": self.number})
        self._drop()

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _take(self, holder: dict[str, Any]) -> bool:
        try:
            import fcntl
        except ImportError:  # Windows: the file's own words decide
            return not _alive_here(holder)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return not _alive_here(holder)
        return True

    def _read(self) -> dict[str, Any]:
        os.lseek(self._fd, 0, os.SEEK_SET)
        try:
            row = json.loads(os.read(self._fd, _MAX_BYTES).decode("utf-8"))
        except ValueError:
            return {}
        return row if isinstance(row, dict) else {}

    def _write(self, row: dict[str, Any]) -> None:
        os.lseek(self._fd, 0, os.SEEK_SET)
        data = json.dumps(row).encode("utf-8")
        os.write(self._fd, data)
        os.ftruncate(self._fd, len(data))

    def _drop(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        _held.discard(self)

    def _not_writable(self, error: OSError) -> RunError:
        return RunError(
            "ST454",
            _("the run folder cannot be written: {error}").format(error=error.strerror or error),
            place=str(self.path.parent),
            fix=_("choose a folder that you may write, on a disk with free space, with --out"),
        )

    def _in_use(self, holder: dict[str, Any]) -> RunError:
        return RunError(
            "ST453",
            _("the run folder is in use by process {pid} on {host} since {started}").format(
                pid=holder.get("pid", "?"), host=holder.get("host", "?"), started=holder.get("started", "?")
            ),
            place=str(self.path.parent),
            fix=_("wait for it or stop it (it saves first), or choose another folder with --out"),
        )


def _alive_here(holder: dict[str, Any]) -> bool:
    """Whether the process that the file names still runs, as far as can be told; another host's counts as alive."""
    pid = holder.get("pid")
    if not isinstance(pid, int):
        return False
    if holder.get("host") != socket.gethostname():
        return True
    import psutil

    try:
        born = psutil.Process(pid).create_time()
        started = datetime.datetime.fromisoformat(str(holder["started"])).timestamp()
    except (psutil.Error, KeyError, ValueError):
        return False
    return bool(born <= started + 2.0)  # a younger process merely got the dead one's number


def _forget_in_child() -> None:
    """A forked loader process must not keep its parent's lock alive."""
    for lock in list(_held):
        lock._drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
