"""Peaks of memory by phase of a run, in bytes, from the allocator on CUDA and the process on the CPU."""

import torch

from stoker.observe.probe import allocator_memory, process_memory, reset_peaks

PROBE = "probe"  # the trial before step 1: a phase of its own, not part of the run's peaks


class MemoryWatch:
    """Peaks of a run. On CUDA the allocator's counters; on the CPU the process's peak resident size as allocated."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.phases: dict[str, int] = {}
        self.peak_allocated_bytes = 0
        self.peak_reserved_bytes: int | None = 0 if self._cuda else None

    def read(self, phase: str) -> tuple[int | None, int | None]:
        """(allocated, reserved) at their highest since the last reading, which was a stretch of `phase`."""
        allocator = allocator_memory() if self._cuda else None
        if allocator is None:
            allocated, reserved = host_rss_bytes(), None
        else:
            allocated, reserved = allocator.peak_allocated_bytes, allocator.peak_reserved_bytes
            if phase != PROBE:
                self.peak_reserved_bytes = max(self.peak_reserved_bytes or 0, reserved)
            reset_peaks()
        if allocated is not None:
            if phase != PROBE:
                self.peak_allocated_bytes = max(self.peak_allocated_bytes, allocated)
            self.phases[phase] = max(self.phases.get(phase, 0), allocated)
        return allocated, reserved


def host_rss_bytes() -> int | None:
    """Highest resident size of this process so far; None where the system does not say."""
    value = process_memory().peak_rss_bytes.value
    return None if value is None else int(value)
