"""Proves that GPUs are matched by UUID, that others' memory is told, and that a missing sensor is a value (case 41)."""

import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.core.units import GIB
from stoker.observe import here
from stoker.observe.bandwidth import MachineRates
from stoker.observe.nvml import (
    GpuFacts,
    GpuState,
    bytes_of_others,
    largest_share,
    read_gpu,
    scan_gpus,
    visible_gpus,
)
from stoker.observe.reading import Reading


def _gpu(index: int, name: str, uuid: str) -> GpuFacts:
    return GpuFacts(
        index=index,
        uuid=uuid,
        name=name,
        total_bytes=80 * GIB,
        visible_bytes=79 * GIB,
        compute_capability=(9, 0),
        memory_bytes_per_s=Reading(3.35e12),
        pcie_bytes_per_s=Reading(63e9),
        link_bytes_per_s=Reading(0.0),
        power_limit_w=Reading(700.0),
        driver="580.1",
    )


_UNLIKE = (_gpu(0, "NVIDIA T4", "GPU-aaaa-1"), _gpu(1, "NVIDIA H100", "GPU-aabb-2"), _gpu(2, "NVIDIA T4", "GPU-cccc-3"))
_ALIKE = tuple(_gpu(i, "NVIDIA H100", f"GPU-{i}{i}") for i in range(4))


def _visible(gpus: tuple[GpuFacts, ...], text: str | None, **more: str) -> tuple[list[int], str]:
    environment = dict(more) if text is None else {"CUDA_VISIBLE_DEVICES": text, **more}
    chosen, note = visible_gpus(gpus, environment)
    return [gpu.index for gpu in chosen], note


def test_uuids_name_the_gpu_whatever_the_order() -> None:
    assert _visible(_UNLIKE, "GPU-cccc-3,GPU-aaaa-1") == ([2, 0], "")
    assert _visible(_UNLIKE, "GPU-cc") == ([2], "")
    assert _visible(_UNLIKE, "GPU-aa")[0] == [], "an ambiguous beginning names nothing"


def test_case_41_number_1_of_unlike_gpus_is_in_doubt_in_default_order_only() -> None:
    indices, note = _visible(_UNLIKE, "1")
    assert indices == [1] and "CUDA_DEVICE_ORDER" in note
    assert _visible(_UNLIKE, "1", CUDA_DEVICE_ORDER="PCI_BUS_ID") == ([1], "")
    assert _visible(_ALIKE, "3,1") == ([3, 1], "")
    assert "CUDA_DEVICE_ORDER" in _visible(_UNLIKE, None)[1]


def test_list_rules_are_those_of_cuda() -> None:
    assert _visible(_ALIKE, None) == ([0, 1, 2, 3], "")
    assert _visible(_ALIKE, "0,9,1")[0] == [0], "the list ends at the first that names nothing"
    for hidden in ("", "-1", "NoDevFiles", "9"):
        indices, note = _visible(_ALIKE, hidden)
        assert indices == [] and "hides" in note
    indices, note = _visible(_ALIKE, "1,1")
    assert indices == [] and "twice" in note


def test_case_41_others_use_used_minus_ours_and_the_share_left() -> None:
    total, free = 47.38 * GIB, 31.44 * GIB
    none = Reading.missing("the driver does not list this process")
    state = GpuState(
        uuid="GPU-1",
        used_bytes=Reading(total - free),
        free_bytes=Reading(free),
        process_bytes=none,
        busy_frac=none,
        power_w=none,
        temperature_c=none,
        sm_clock_hz=none,
    )
    others = bytes_of_others(state, our_bytes=0).value
    assert others is not None and round(others / GIB, 2) == 15.94
    assert bytes_of_others(state, our_bytes=GIB).value == pytest.approx(others - GIB)
    assert largest_share(total, free) == 0.66
    assert round(0.95 * total / GIB, 2) == 45.01 and largest_share(total, free) < 0.95


class FakeNvml(types.ModuleType):
    """A driver of two GPUs; the second lacks most sensors, as laptops, MIG slices and old drivers do."""

    NVML_CLOCK_MEM = 2
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    nvmlMemory_v2 = 2

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.open = 0
        self.fail_init = False

    def nvmlInit(self) -> None:
        if self.fail_init:
            raise self.NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def _only_first(self, handle: int, value: Any) -> Any:
        if handle:
            raise self.NVMLError("Not Supported")
        return value

    def __getattr__(self, name: str) -> Any:
        memory = types.SimpleNamespace(total=1000, used=400, free=600, reserved=30)
        answers: dict[str, Any] = {
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlSystemGetDriverVersion": lambda: b"580.1",
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetHandleByUUID": lambda uuid: int(uuid[-1:]),
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetName": lambda handle: b"NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": lambda handle, version=None: (
                memory if version is None else self._only_first(handle, memory)
            ),
            "nvmlDeviceGetCudaComputeCapability": lambda handle: self._only_first(handle, (9, 0)),
            "nvmlDeviceGetMaxClockInfo": lambda handle, kind: self._only_first(handle, 3201),
            "nvmlDeviceGetMemoryBusWidth": lambda handle: 6144,
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: self._only_first(handle, 5),
            "nvmlDeviceGetMaxPcieLinkWidth": lambda handle: 16,
            "nvmlDeviceGetNvLinkState": lambda handle, link: self._only_first(handle, int(link < 18)),
            "nvmlDeviceGetNvLinkVersion": lambda handle, link: 4,
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: self._only_first(handle, 700_000),
            "nvmlDeviceGetUtilizationRates": lambda handle: self._only_first(handle, types.SimpleNamespace(gpu=100)),
            "nvmlDeviceGetPowerUsage": lambda handle: self._only_first(handle, 120_000),
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: (
                [types.SimpleNamespace(pid=7, usedGpuMemory=100), types.SimpleNamespace(pid=8, usedGpuMemory=None)]
                if handle == 0
                else []
            ),
        }
        if name not in answers:
            raise AttributeError(name)  # a function that this driver's library lacks
        return answers[name]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield fake
    assert fake.open == 0, "every opening was closed"


def test_scan_reads_rated_sizes_and_leaves_gaps_with_reasons(nvml: FakeNvml) -> None:
    first, second = scan_gpus().gpus
    assert (first.name, first.driver, first.visible_bytes, first.compute_capability) == (
        "NVIDIA H200",
        "580.1",
        970,
        (9, 0),
    )
    assert first.memory_bytes_per_s.value == pytest.approx(4.9167e12, rel=1e-4)  # 2 x 3201 MHz x 6144 bit
    assert first.pcie_bytes_per_s.value == pytest.approx(63.0e9, rel=1e-3)
    assert first.link_bytes_per_s.value == 450e9  # 18 links of 25 GB/s: half of the 900 sold as both ways
    assert second.visible_bytes == 1000 and second.compute_capability is None
    assert second.memory_bytes_per_s.value is None and second.memory_bytes_per_s.reason == "Not Supported"
    assert second.link_bytes_per_s.value == 0.0


def test_state_of_one_gpu_by_uuid(nvml: FakeNvml) -> None:
    state = read_gpu("GPU-0", pid=7)
    assert (state.used_bytes.value, state.process_bytes.value, state.busy_frac.value) == (400.0, 100.0, 1.0)
    assert state.power_w.value == 120.0 and bytes_of_others(state).value == 300.0
    assert state.temperature_c.value is None and "nvmlDeviceGetTemperature" in state.temperature_c.reason
    other = read_gpu("GPU-1", pid=7)
    assert other.busy_frac.value is None and other.process_bytes.value is None and other.used_bytes.value == 400.0
    assert "not list" in other.process_bytes.reason


def test_no_driver_is_a_reason(nvml: FakeNvml) -> None:
    nvml.fail_init = True
    scan = scan_gpus()
    assert scan.gpus == () and "Driver Not Loaded" in scan.reason
    assert "Driver Not Loaded" in read_gpu("GPU-0").used_bytes.reason


def test_no_nvml_package_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in scan_gpus().reason


def test_this_machine_with_gpus(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = here.this_machine()
    assert cluster.num_gpus == 2 and cluster.device.kind == "cuda" and cluster.device.name == "NVIDIA H200"
    assert cluster.device.compute_capability == (9, 0) and cluster.device.visible_bytes == 970
    assert cluster.device.interconnect == "nvlink" and cluster.host.num_cores
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    assert here.this_machine().num_gpus == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert here.this_machine().device.kind == "cpu"


def test_measured_pcie_goes_before_the_rated_one() -> None:
    rates = MachineRates(
        machine="x",
        num_cores=2,
        date="2026-01-01",
        gpu="NVIDIA H100",
        pcie_up_bytes_per_s=55e9,
        pcie_down_bytes_per_s=50e9,
    )
    assert here.gpu_device(_ALIKE[0], rates).pcie_bytes_per_s == 50e9
    assert here.gpu_device(_UNLIKE[0], rates).pcie_bytes_per_s == 63e9
    assert here.gpu_device(_ALIKE[0]).link_bytes_per_s == 63e9
