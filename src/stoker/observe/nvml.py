"""NVIDIA GPUs as the driver's management library sees them, matched with CUDA's numbering by UUID (case 41).

CUDA numbers GPUs by its own guess of speed and by CUDA_VISIBLE_DEVICES, NVML by PCI bus: the index of one is not
the index of the other. Nothing here creates a CUDA context, and nothing raises for a sensor that is missing.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.core.i18n import _
from stoker.observe.reading import Reading

_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}  # PCI-SIG, one direction
_NVLINK_BYTES_PER_S = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 50e9}  # per link, one direction; NVIDIA's data sheets
_MAX_LINKS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """What does not change: identity and rated sizes. `index` is NVML's. Rates are bytes/s, one direction."""

    index: int
    uuid: str
    name: str
    total_bytes: int
    visible_bytes: int
    compute_capability: tuple[int, int] | None
    memory_bytes_per_s: Reading
    pcie_bytes_per_s: Reading
    link_bytes_per_s: Reading
    power_limit_w: Reading
    driver: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """What changes. `busy_frac` says only that some kernel was resident, not that the GPU did useful work (case 39)."""

    uuid: str
    used_bytes: Reading
    free_bytes: Reading
    process_bytes: Reading
    busy_frac: Reading
    power_w: Reading
    temperature_c: Reading
    sm_clock_hz: Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuScan:
    """Every GPU of the machine in NVML's order; without any, `reason` says why."""

    gpus: tuple[GpuFacts, ...]
    reason: str = ""


@contextlib.contextmanager
def open_nvml() -> Iterator[Any]:
    """The pynvml module, initialised, or the reason (a str) why there is none."""
    try:
        import pynvml
    except ImportError:
        yield _("nvidia-ml-py is not installed (pip install nvidia-ml-py)")
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield _("no NVIDIA driver answers ({error})").format(error=error)
        return
    try:
        yield pynvml
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def scan_gpus() -> GpuScan:
    """The machine's NVIDIA GPUs, whatever CUDA_VISIBLE_DEVICES says. Never raises."""
    with open_nvml() as nvml:
        if isinstance(nvml, str):
            return GpuScan(gpus=(), reason=nvml)
        try:
            count = nvml.nvmlDeviceGetCount()
            driver = _word(nvml.nvmlSystemGetDriverVersion())
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
            facts = tuple(_facts(nvml, handle, index, driver) for index, handle in enumerate(handles))
        except nvml.NVMLError as error:
            return GpuScan(gpus=(), reason=_("the driver's answer is broken: {error}").format(error=error))
    return GpuScan(gpus=facts, reason="" if facts else _("the driver sees no GPU"))


def read_gpu(uuid: str, pid: int | None = None) -> GpuState:
    """The state of the GPU with `uuid` now; `process_bytes` is that of `pid` (default: this process)."""
    with open_nvml() as nvml:
        if isinstance(nvml, str):
            return _no_state(uuid, nvml)
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid.encode("ascii"))
        except (nvml.NVMLError, UnicodeError) as error:
            return _no_state(uuid, str(error))
        memory = _try(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        return GpuState(
            uuid=uuid,
            used_bytes=_part(memory, "used"),
            free_bytes=_part(memory, "free"),
            process_bytes=_process_bytes(nvml, handle, pid or os.getpid()),
            busy_frac=_sensor(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0),
            power_w=_sensor(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0),
            temperature_c=_sensor(nvml, lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            sm_clock_hz=_sensor(nvml, lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),
        )


def visible_gpus(
    gpus: Sequence[GpuFacts], environment: Mapping[str, str] = os.environ
) -> tuple[tuple[GpuFacts, ...], str]:
    """(GPUs in CUDA's order under CUDA_VISIBLE_DEVICES, note). The note says where the order cannot be known.

    Words are UUIDs (or their unambiguous beginning) or numbers; as CUDA does, the list ends at the first that
    names nothing, and a doubled one makes it empty. Numbers follow PCI order only under CUDA_DEVICE_ORDER=PCI_BUS_ID
    or when all GPUs are alike: unlike ones CUDA sorts by a guess of its own.
    """
    text = environment.get("CUDA_VISIBLE_DEVICES")
    certain = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({gpu.name for gpu in gpus}) <= 1
    doubt = "" if certain else _("CUDA's order of unlike GPUs is unknown here: set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    if text is None:
        return tuple(gpus), doubt
    chosen: list[GpuFacts] = []
    by_number = False
    for word in (part.strip() for part in text.split(",")):
        number = int(word) if word.isdigit() else None
        by_number = by_number or number is not None
        if number is not None:
            found = list(gpus[number : number + 1])
        else:
            found = [gpu for gpu in gpus if word.startswith("GPU-") and gpu.uuid.lower().startswith(word.lower())]
        if len(found) != 1:
            break
        if found[0] in chosen:
            return (), _("CUDA_VISIBLE_DEVICES names a GPU twice: CUDA then sees none")
        chosen.append(found[0])
    if not chosen:
        return (), _("CUDA_VISIBLE_DEVICES={text} hides every GPU").format(text=text)
    return tuple(chosen), doubt if by_number else ""


def bytes_of_others(state: GpuState, our_bytes: int | None = None) -> Reading:
    """Memory on the GPU that other processes hold: used minus ours.

    `our_bytes`: what we know of ourselves (allocator plus context), for containers, where the driver lists no
    processes; else the driver's figure; without either all that is used is taken for others'.
    """
    ours = our_bytes if our_bytes is not None else state.process_bytes.num_bytes or 0
    if state.used_bytes.value is None:
        return state.used_bytes
    return Reading(max(0.0, state.used_bytes.value - ours))


def largest_share(total_bytes: float, free_bytes: float) -> float:
    """The largest share of the card, in whole hundredths, that is still free."""
    return int(free_bytes / total_bytes * 100.0) / 100.0


def _facts(nvml: Any, handle: Any, index: int, driver: str) -> GpuFacts:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    with_reserve = _try(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    reserved = int(getattr(with_reserve, "reserved", 0) or 0)
    capability = _try(nvml, lambda: tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)))
    return GpuFacts(
        index=index,
        uuid=_word(nvml.nvmlDeviceGetUUID(handle)),
        name=_word(nvml.nvmlDeviceGetName(handle)),
        total_bytes=int(memory.total),
        visible_bytes=int(memory.total) - reserved,
        compute_capability=capability if isinstance(capability, tuple) else None,
        memory_bytes_per_s=_sensor(nvml, lambda: _memory_rate(nvml, handle)),
        pcie_bytes_per_s=_sensor(nvml, lambda: _pcie_rate(nvml, handle)),
        link_bytes_per_s=_sensor(nvml, lambda: _nvlink_rate(nvml, handle)),
        power_limit_w=_sensor(nvml, lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000.0),
        driver=driver,
    )


def _memory_rate(nvml: Any, handle: Any) -> float:
    """Rated bytes/s: the highest memory clock, two transfers a cycle, over the bus width."""
    clock_hz = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6
    return float(2.0 * clock_hz * nvml.nvmlDeviceGetMemoryBusWidth(handle) / 8.0)


def _pcie_rate(nvml: Any, handle: Any) -> float:
    generation = nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
    return float(_LANE_BYTES_PER_S[generation] * nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))


def _nvlink_rate(nvml: Any, handle: Any) -> float:
    total = 0.0
    for link in range(_MAX_LINKS):
        if _try(nvml, functools.partial(nvml.nvmlDeviceGetNvLinkState, handle, link)) == 1:
            total += _NVLINK_BYTES_PER_S.get(nvml.nvmlDeviceGetNvLinkVersion(handle, link), 25e9)
    return total


def _process_bytes(nvml: Any, handle: Any, pid: int) -> Reading:
    rows = _try(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    if isinstance(rows, str):
        return Reading.missing(rows)
    mine = [row.usedGpuMemory for row in rows if row.pid == pid and row.usedGpuMemory is not None]
    return Reading(sum(mine)) if mine else Reading.missing(_("the driver does not list this process"))


def _no_state(uuid: str, reason: str) -> GpuState:
    none = Reading.missing(reason)
    return GpuState(
        uuid=uuid,
        used_bytes=none,
        free_bytes=none,
        process_bytes=none,
        busy_frac=none,
        power_w=none,
        temperature_c=none,
        sm_clock_hz=none,
    )


def _try(nvml: Any, read: Callable[[], Any]) -> Any:
    """What `read` gives, or the reason as a str: a sensor may be absent, or its function from an older driver."""
    try:
        return read()
    except (nvml.NVMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        return str(error) or type(error).__name__


def _sensor(nvml: Any, read: Callable[[], Any]) -> Reading:
    value = _try(nvml, read)
    return Reading.missing(value) if isinstance(value, str) else Reading(float(value))


def _part(memory: Any, name: str) -> Reading:
    return Reading.missing(memory) if isinstance(memory, str) else Reading(float(getattr(memory, name)))


def _word(value: str | bytes) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value
