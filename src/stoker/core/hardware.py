"""Devices, links and clusters: what a job could run on. Peaks are dense, fp32-accumulate; bytes are SI."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stoker.core.estimate import Source

DeviceKind = Literal["cuda", "rocm", "cpu", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator product, form factor kept apart (H100 SXM, PCIe and NVL are three), or a CPU host.

    `sold_bytes` is the marketing size, `visible_bytes` what a process can see (the size to fit in).
    `peak_flops_per_s`: dtype name -> dense FLOP/s; a dtype that the hardware lacks is absent.
    `compute_capability`: CUDA only, e.g. (9, 0).
    `link_bytes_per_s`: GPU to GPU inside the node, one direction, per GPU; `pcie_bytes_per_s` to the host.
    `rated_clock_frac`: the clock of the peak rates over that of other boards of the family (H100 PCIe 0.885).
    `link_max_gpus`: how many GPUs that link joins (a bridge: 2 or 4; beyond, PCIe); None: any number.
    `visible_source`: whether the visible size was measured or follows from a rule.
    `peer_to_peer`: whether GPUs reach each other's memory over PCIe (GeForce cards do not: bytes bounce off the host).
    """

    name: str
    kind: DeviceKind
    vendor: str
    architecture: str
    compute_capability: tuple[int, int] | None
    sold_bytes: int
    visible_bytes: int
    memory_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float]
    interconnect: str
    link_bytes_per_s: float
    pcie_bytes_per_s: float
    tdp_w: float | None = None
    rated_clock_frac: float = 1.0
    launch_year: int | None = None
    note: str = ""
    link_max_gpus: int | None = None
    visible_source: Source = Source.ASSUMED
    peer_to_peer: bool = True
    source: Source = Source.VENDOR_SPEC
    sources: tuple[str, ...] = ()

    def supports(self, dtype: str) -> bool:
        """Whether matrix units compute in `dtype` natively (a T4 or V100: never bf16)."""
        return dtype in self.peak_flops_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine around the devices. Unknown sizes are None, never a guess."""

    num_cores: int | None = None
    dram_bytes: int | None = None
    disk_free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`num_gpus` devices in all, spread evenly over `nodes`.

    `inter_node_bytes_per_s`: out of one node, all its GPUs together, one direction; None: that of the vendor's own
    machine with these GPUs (`catalogue/links.py`).
    """

    device: Device
    num_gpus: int
    nodes: int = 1
    inter_node_bytes_per_s: float | None = None
    host: Host = field(default_factory=Host)

    @property
    def gpus_per_node(self) -> int:
        return self.num_gpus // self.nodes

    @property
    def label(self) -> str:
        """Short name, such as `8 x H100-SXM5-80GB`."""
        return f"{self.num_gpus} x {self.device.name}"
