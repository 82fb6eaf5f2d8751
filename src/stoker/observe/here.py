"""This machine as a Cluster to plan for: its NVIDIA GPUs as the driver describes them, else its CPU.

Nothing here loads torch. Sizes are what this process can see (bytes); peaks of a GPU are left to the catalogue, which
knows the product by the driver's name; a CPU's rates are those that `stoker doctor` measured, or assumed ones.
"""

import platform
from pathlib import Path

from stoker.core.estimate import Source
from stoker.core.hardware import Cluster, Device, Host
from stoker.core.i18n import _
from stoker.observe.bandwidth import MachineRates, cpu_name, keep_rates, kept_rates, measure_rates
from stoker.observe.limits import disk_free_bytes, host_memory_bytes, num_cores, usable_memory_bytes
from stoker.observe.nvml import GpuFacts, scan_gpus, visible_gpus

_ARCHITECTURES = {5: "Maxwell", 6: "Pascal", 7: "Volta", 8: "Ampere", 9: "Hopper", 10: "Blackwell", 12: "Blackwell"}
_ASSUMED_CORE_FLOPS_PER_S = 30e9  # fp32 matrix product of one core with 256-bit vectors, as a cloud CPU sustains it
_ASSUMED_RAM_BYTES_PER_S = 10e9


def this_machine(folder: Path | None = None, *, measure: bool = False) -> Cluster:
    """The devices that CUDA would show here (those most alike, with the first), or the CPU; and the host.

    `folder`: whose disk counts (default: the working directory). With `measure` missing CPU rates are measured
    (two seconds) and kept; without it they are read or assumed, and the device's `source` and `note` say which.
    """
    place = folder or Path.cwd()
    rates = kept_rates()
    gpus, note = visible_gpus(scan_gpus().gpus)
    host = Host(
        num_cores=num_cores(),
        dram_bytes=usable_memory_bytes().num_bytes,
        disk_free_bytes=disk_free_bytes(place).num_bytes,
    )
    if gpus:
        alike = [gpu for gpu in gpus if gpu.name == gpus[0].name]
        return Cluster(device=gpu_device(gpus[0], rates, note), num_gpus=len(alike), host=host)
    if rates is None and measure:
        rates = measure_rates(place)
        keep_rates(rates)
    return Cluster(device=cpu_device(rates), num_gpus=1, host=host)


def gpu_device(gpu: GpuFacts, rates: MachineRates | None = None, note: str = "") -> Device:
    """A GPU by the driver's facts; `peak_flops_per_s` is empty, a measured PCIe rate goes before the rated one."""
    pcie = gpu.pcie_bytes_per_s.value or 0.0
    measured = rates is not None and rates.gpu == gpu.name and rates.pcie_up_bytes_per_s is not None
    if rates is not None and measured:
        pcie = min(rates.pcie_up_bytes_per_s or pcie, rates.pcie_down_bytes_per_s or pcie)
    links = gpu.link_bytes_per_s.value or 0.0
    return Device(
        name=gpu.name,
        kind="cuda",
        vendor="NVIDIA",
        architecture=_architecture(gpu.compute_capability),
        compute_capability=gpu.compute_capability,
        sold_bytes=gpu.total_bytes,
        visible_bytes=gpu.visible_bytes,
        memory_bytes_per_s=gpu.memory_bytes_per_s.value or 0.0,
        peak_flops_per_s={},
        interconnect="nvlink" if links else "pcie",
        link_bytes_per_s=links or pcie,
        pcie_bytes_per_s=pcie,
        tdp_w=gpu.power_limit_w.value,
        note=note,
        visible_source=Source.MEASURED,
        source=Source.VENDOR_SPEC,
        sources=(_("NVIDIA driver {version}").format(version=gpu.driver),),
    )


def cpu_device(rates: MachineRates | None) -> Device:
    """The CPU as a device: memory that this process can get, fp32 rate and memory bandwidth from `rates` or assumed."""
    cores = num_cores()
    total = host_memory_bytes()[0].num_bytes or 0
    known = rates is not None and rates.matmul_flops_per_s is not None and rates.ram_bytes_per_s is not None
    flops = rates.matmul_flops_per_s if rates else None
    ram = rates.ram_bytes_per_s if rates else None
    note = (
        _("this machine was measured on {date}").format(date=rates.date)
        if rates is not None and known
        else _("speed assumed: `stoker doctor` measures it")
    )
    name = cpu_name()
    return Device(
        name=f"{name} ({cores} cores)",
        kind="cpu",
        vendor=next((v for v in ("Intel", "AMD", "Apple", "ARM") if v.lower() in name.lower()), "unknown"),
        architecture=platform.machine(),
        compute_capability=None,
        sold_bytes=total,
        visible_bytes=usable_memory_bytes().num_bytes or total,
        memory_bytes_per_s=ram or _ASSUMED_RAM_BYTES_PER_S,
        peak_flops_per_s={"fp32": flops or cores * _ASSUMED_CORE_FLOPS_PER_S},
        interconnect="none",
        link_bytes_per_s=0.0,
        pcie_bytes_per_s=0.0,
        note=note,
        visible_source=Source.MEASURED,
        source=Source.MEASURED if known else Source.ASSUMED,
        sources=("stoker doctor",) if known else (),
    )


def _architecture(capability: tuple[int, int] | None) -> str:
    if capability is None:
        return "unknown"
    if capability == (7, 5):
        return "Turing"
    if capability == (8, 9):
        return "Ada"
    return _ARCHITECTURES.get(capability[0], "unknown")
