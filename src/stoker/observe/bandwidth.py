"""How fast this machine moves and multiplies, measured in about two seconds and kept with its date.

Rates: RAM copy (bytes read plus bytes written, over seconds), fp32 matrix product (2 n^3 FLOP), disk write (fsync
counted) and read (cache dropped), PCIe both ways from pinned memory. Planning reads what was kept, or says "assumed".
"""

import contextlib
import datetime
import os
import platform
import secrets
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from stoker.core.codec import decode, dumps, loads
from stoker.core.paths import write_whole
from stoker.observe.limits import disk_free_bytes, num_cores, usable_memory_bytes

_COPY_BYTES = 128 << 20  # a copy pair per core is beyond the last-level caches of today
_MATMUL_EDGE = 1024
_BLOCK_BYTES = 16 << 20
_SYNC_BYTES = 4 * _BLOCK_BYTES
_DISK_BYTES = 512 << 20
_PCIE_BYTES = 256 << 20
_PROBE_S = 0.4
_LEAST_RATE, _MOST_RATE = 1e3, 1e18  # of bytes or FLOPs a second; outside it the file is damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRates:
    """Measured rates; None where not measured. `machine` and `num_cores` say of what, `date` (ISO) when.

    Disk rates belong to the file system of `disk_place`; PCIe rates to the GPU named `gpu`.
    """

    machine: str
    num_cores: int
    date: str
    ram_bytes_per_s: float | None = None
    matmul_flops_per_s: float | None = None
    matmul_with: str = ""
    disk_place: str = ""
    disk_write_bytes_per_s: float | None = None
    disk_read_bytes_per_s: float | None = None
    gpu: str = ""
    pcie_up_bytes_per_s: float | None = None
    pcie_down_bytes_per_s: float | None = None


def measure_rates(folder: Path, *, gpu: bool = False) -> MachineRates:
    """Measure RAM, matrix product and the disk of `folder`; PCIe too with `gpu`, which imports torch."""
    write, read = measure_disk(folder)
    product, tool = measure_matmul()
    rates = MachineRates(
        machine=machine_name(),
        num_cores=num_cores(),
        date=datetime.date.today().isoformat(),
        ram_bytes_per_s=measure_ram(),
        matmul_flops_per_s=product,
        matmul_with=tool,
        disk_place=str(folder.absolute()),
        disk_write_bytes_per_s=write,
        disk_read_bytes_per_s=read,
    )
    if gpu:
        name, up, down = measure_pcie()
        rates = replace(rates, gpu=name, pcie_up_bytes_per_s=up, pcie_down_bytes_per_s=down)
    return rates


def measure_ram() -> float | None:
    """Copy bandwidth of all usable cores together: bytes read plus written, per second. None without memory to try."""
    threads = num_cores()
    rest = usable_memory_bytes().value or 0.0
    size = min(_COPY_BYTES, int(rest / 8 / threads / 2))
    if size < 1 << 20:
        return None
    copy = _copier(size)
    with ThreadPoolExecutor(threads) as pool:
        tasks = list(pool.map(lambda _i: copy(), range(threads)))
        list(pool.map(lambda task: task(), tasks))  # the first copy pays for the pages
        rounds, started = 0, time.perf_counter()
        while rounds < 2 or time.perf_counter() - started < _PROBE_S:
            list(pool.map(lambda task: task(), tasks))
            rounds += 1
        seconds = time.perf_counter() - started
    return 2.0 * size * threads * rounds / seconds


def _copier(size: int) -> Callable[[], Callable[[], object]]:
    """A maker of copy tasks, each with buffers of its own."""
    try:
        import numpy as np
    except ImportError:

        def plain() -> Callable[[], object]:
            source, target = bytearray(size), memoryview(bytearray(size))
            return lambda: target.__setitem__(slice(None), source)

        return plain

    def fast() -> Callable[[], object]:
        source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
        return lambda: np.copyto(target, source)  # releases the interpreter lock

    return fast


def measure_matmul() -> tuple[float | None, str]:
    """(fp32 FLOP/s of a square matrix product, the library used): torch where it is loaded already, else numpy."""
    multiply, tool = _multiplier()
    if multiply is None:
        return None, ""
    multiply()
    rounds, started = 0, time.perf_counter()
    while rounds < 2 or time.perf_counter() - started < _PROBE_S:
        multiply()
        rounds += 1
    return 2.0 * _MATMUL_EDGE**3 * rounds / (time.perf_counter() - started), tool


def _multiplier() -> tuple[Callable[[], object] | None, str]:
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "matmul"):
        left = torch.full((_MATMUL_EDGE, _MATMUL_EDGE), 0.5)
        return (lambda: torch.matmul(left, left)), "torch"
    try:
        import numpy as np
    except ImportError:
        return None, ""
    matrix = np.full((_MATMUL_EDGE, _MATMUL_EDGE), 0.5, np.float32)
    return (lambda: matrix @ matrix), "numpy"


def measure_disk(folder: Path) -> tuple[float | None, float | None]:
    """(write with fsync, read past the cache) in bytes/s in `folder`; None where it cannot be written or is too full.

    The trial file is at most 512 MB and a quarter of what is free, holds random bytes (a compressing disk must not
    cheat), and is removed again.
    """
    total = min(_DISK_BYTES, int((disk_free_bytes(folder).value or 0.0) / 4))
    if total < _BLOCK_BYTES:
        return None, None
    path = folder / f".stoker-probe-{os.getpid()}-{secrets.token_hex(4)}"
    block = os.urandom(_BLOCK_BYTES)
    try:
        written, write_rate = _write_trial(path, block, total)
        return write_rate, _read_trial(path, written)
    except OSError:
        return None, None
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _write_trial(path: Path, block: bytes, total: int) -> tuple[int, float]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        written, started = 0, time.perf_counter()
        while written < total and (written == 0 or time.perf_counter() - started < _PROBE_S):
            written += os.write(descriptor, block)
            if written % _SYNC_BYTES == 0:
                os.fsync(descriptor)  # else a slow disk would owe seconds of cached bytes at the end
        os.fsync(descriptor)
        return written, written / (time.perf_counter() - started)
    finally:
        os.close(descriptor)


def _read_trial(path: Path, written: int) -> float | None:
    with path.open("rb", buffering=0) as stream:
        if not hasattr(os, "posix_fadvise"):
            return None  # it would be the cache's rate
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        buffer, done, started = bytearray(_BLOCK_BYTES), 0, time.perf_counter()
        while done < written:
            count = stream.readinto(buffer)
            if not count:
                break
            done += count
            if time.perf_counter() - started > 2 * _PROBE_S:
                break
        return done / (time.perf_counter() - started)


def measure_pcie() -> tuple[str, float | None, float | None]:
    """(GPU name, host to GPU, GPU to host) in bytes/s, pinned, 256 MiB at a time. Imports torch, uses CUDA device 0."""
    try:
        import torch
    except ImportError:
        return "", None, None
    if not torch.cuda.is_available():
        return "", None, None
    host = torch.empty(_PCIE_BYTES, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(_PCIE_BYTES, dtype=torch.uint8, device="cuda")
    up = _copy_rate(torch, card, host)
    down = _copy_rate(torch, host, card)
    return torch.cuda.get_device_name(0), up, down


def _copy_rate(torch: Any, target: Any, source: Any, rounds: int = 5) -> float:
    target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _round in range(rounds):
        target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return float(rounds * _PCIE_BYTES / (time.perf_counter() - started))


def machine_name() -> str:
    """The name under which rates are kept: host and processor, since a home folder may be shared by machines."""
    return f"{socket.gethostname()} {cpu_name()}"


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor as the operating system calls it."""
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("model name", "Model", "Hardware")) and ":" in line:
                return " ".join(line.split(":", 1)[1].split())
    return platform.processor() or platform.machine() or "CPU"


def cache_file() -> Path:
    """Where measured rates are kept."""
    from platformdirs import user_cache_path

    return user_cache_path("stoker") / "machine_rates.json"


def kept_rates(path: Path | None = None) -> MachineRates | None:
    """The rates measured last on this machine with as many cores, or None where there are no plausible ones."""
    try:
        rows = loads((path or cache_file()).read_text(encoding="utf-8"))
        found: MachineRates = decode(MachineRates, rows[_key()])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    told = (getattr(found, item.name) for item in fields(found) if item.name.endswith("_per_s"))
    return found if all(rate is None or _LEAST_RATE <= rate <= _MOST_RATE for rate in told) else None


def keep_rates(rates: MachineRates, path: Path | None = None) -> Path | None:
    """Store `rates` for later plans, those of other machines kept; returns the file, or None if it cannot be written.

    A PCIe rate that was not tried this time is carried over; the others are those of this measurement alone.
    """
    file = path or cache_file()
    former = kept_rates(file)
    if former is not None and former.gpu and not rates.gpu:
        rates = replace(
            rates,
            gpu=former.gpu,
            pcie_up_bytes_per_s=former.pcie_up_bytes_per_s,
            pcie_down_bytes_per_s=former.pcie_down_bytes_per_s,
        )
    try:
        rows = loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        rows = {}
    rows = rows if isinstance(rows, dict) else {}
    rows[_key()] = rates
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, dumps(rows, indent=1) + "\n")
    except OSError:
        return None
    return file


def _key() -> str:
    return f"{machine_name()} x{num_cores()}"
