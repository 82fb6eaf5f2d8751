"""Host memory of exact size: one mmap, registered with CUDA as a whole, given out in aligned parts.

torch's pinned allocator rounds up to powers of two (80 GB of an 8 B model's state would take 154). Sizes are decided
from this process's cgroup, never from MemTotal, before a byte is touched: refused with numbers, or there.
"""

import contextlib
import ctypes
import mmap
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from stoker.core.errors import RunError
from stoker.core.human import format_bytes
from stoker.core.i18n import _
from stoker.engine.tiers.layout import aligned
from stoker.observe.limits import usable_memory_bytes

_SPARE_BYTES = 1 << 30  # of the interpreter, the loader and the libraries
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14: pages are made by several threads before they are pinned
_TOUCH_BYTES = 1 << 30


class HostSlab:
    """`num_bytes` of host memory, zero at first. `pinned`: whether CUDA took it; copies are several times slower if
    not. `take` hands out parts, in order, and never back."""

    def __init__(self, num_bytes: int, *, pin: bool) -> None:
        self.num_bytes = aligned(max(num_bytes, 1), mmap.PAGESIZE)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._map = mmap.mmap(-1, self.num_bytes, flags=flags)
        with contextlib.suppress(OSError, AttributeError):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.tensor = torch.frombuffer(self._map, dtype=torch.uint8)
        self.pinned = bool(pin) and self._register()
        self._given = 0

    def take(self, num_bytes: int) -> torch.Tensor:
        """The next `num_bytes` (uint8), starting at a disk block. Raises MemoryError past the end."""
        start, self._given = self._given, self._given + aligned(num_bytes)
        if self._given > self.num_bytes:
            raise MemoryError(f"a slab of {self.num_bytes} bytes was laid out too small")
        return self.tensor[start : start + num_bytes]

    def close(self) -> None:
        """Let CUDA go of the pages; the memory goes with the last tensor. A slab that is dropped does it by itself."""
        if self.pinned:
            self._release()
            self.pinned = False

    def _register(self) -> bool:
        starts = range(0, self.num_bytes, _TOUCH_BYTES)
        with ThreadPoolExecutor(8) as pool, contextlib.suppress(OSError, ValueError):
            list(
                pool.map(
                    lambda at: self._map.madvise(_POPULATE_WRITE, at, min(_TOUCH_BYTES, self.num_bytes - at)), starts
                )
            )
        address = self.tensor.data_ptr()
        if int(_cudart().cudaHostRegister(address, self.num_bytes, 0)) != 0:
            _forget_error()
            return False
        # pages that are unmapped while registered make the next slab at their address fail
        self._release = weakref.finalize(self, _unregister, address)
        self._release.atexit = False
        return True


def _unregister(address: int) -> None:
    torch.cuda.synchronize()
    _cudart().cudaHostUnregister(address)


def _forget_error() -> None:
    """Clear the runtime's last error: torch would raise it at the next kernel, far from here."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(f"libcudart.so.{str(torch.version.cuda).split('.')[0]}").cudaGetLastError()


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def require_dram(
    wanted_bytes: int, budget_bytes: int | None, *, usable: Callable[[], float | None] | None = None
) -> None:
    """Raises RunError ST460 where the budget, or what this process can still get, is less than the tiers need."""
    left = usable() if usable is not None else usable_memory_bytes().value
    limits = []
    if budget_bytes is not None:
        limits.append((float(budget_bytes), _("the budget for DRAM (hardware.dram_gb)")))
    if left is not None:
        limits.append((max(0.0, left - _SPARE_BYTES), _("what this process can still get of the host's memory")))
    for limit, name in limits:
        if wanted_bytes > limit:
            raise RunError(
                "ST460",
                _("the tiers need {wanted} of host memory; {name} is {limit}").format(
                    wanted=format_bytes(wanted_bytes), name=name, limit=format_bytes(limit)
                ),
                place="run.placement: tiers",
                fix=_("give more DRAM, keep more on the GPU, or let state overflow to flash (hardware.nvme)"),
            )
