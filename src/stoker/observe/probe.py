"""Memory of this process and of torch's allocator, in bytes, at this moment. Never imports torch by itself."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.core.i18n import _
from stoker.observe.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """Resident memory of this process now and at its highest since the start."""

    rss_bytes: Reading
    peak_rss_bytes: Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorMemory:
    """torch's CUDA allocator on one device: what tensors hold, and what it keeps from the driver; now and at peak."""

    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int


def process_memory(status_file: Path = Path("/proc/self/status")) -> ProcessMemory:
    """Memory of this process, from /proc where there is one, else from psutil."""
    try:
        rows = dict(line.split(":", 1) for line in status_file.read_text(encoding="utf-8").splitlines() if ":" in line)
        return ProcessMemory(
            rss_bytes=Reading(int(rows["VmRSS"].split()[0]) * 1024),
            peak_rss_bytes=Reading(int(rows["VmHWM"].split()[0]) * 1024),
        )
    except (OSError, KeyError, ValueError, IndexError):
        pass
    try:
        import psutil

        info = psutil.Process().memory_info()
    except (ImportError, OSError) as error:
        missing = Reading.missing(str(error))
        return ProcessMemory(rss_bytes=missing, peak_rss_bytes=missing)
    return ProcessMemory(rss_bytes=Reading(info.rss), peak_rss_bytes=_peak_rss(info))


def allocator_memory(device: Any = None, modules: Mapping[str, Any] = sys.modules) -> AllocatorMemory | None:
    """torch's allocator on `device` (default: the current one), or None while torch or CUDA is not in use here."""
    torch = modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return None
    stats = torch.cuda.memory_stats(device)
    return AllocatorMemory(
        allocated_bytes=stats.get("allocated_bytes.all.current", 0),
        reserved_bytes=stats.get("reserved_bytes.all.current", 0),
        peak_allocated_bytes=stats.get("allocated_bytes.all.peak", 0),
        peak_reserved_bytes=stats.get("reserved_bytes.all.peak", 0),
    )


def reset_peaks(device: Any = None, modules: Mapping[str, Any] = sys.modules) -> None:
    """Start torch's peak counters anew; does nothing while CUDA is not in use."""
    torch = modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats(device)


def _peak_rss(info: Any) -> Reading:
    if hasattr(info, "peak_wset"):  # Windows
        return Reading(info.peak_wset)
    try:
        import resource
    except ImportError:
        return Reading.missing(_("this system keeps no peak"))
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, the others KiB
    return Reading(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
