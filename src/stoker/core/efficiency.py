"""Efficiency: which share of a device's rated speed real training reaches, and what a launch costs.

Shares are of the dense peak (compute) and of the rated bandwidth (memory), launches in seconds a kernel, fitted by
hardware family, number format and shape class from measured facts (`catalogue/data/efficiency*.csv`), never by row.
What own runs measured beside what was predicted is kept as corrections, which the next plan applies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stoker.core.estimate import Source
from stoker.core.hardware import Device

ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedShares:
    """Constants of one hardware family and number format.

    `matmul_frac`, `attention_frac`: share of the dense peak in large matrix products and in fused attention, while
    power does not limit the clock. `memory_frac`: share of the rated memory bandwidth in element-wise work.
    `wave_outputs`: outputs of a product that one unfilled wave of tiles wastes. `full_power_w_per_tflop`: watts for
    each TFLOP/s of 16-bit peak from which on the clock holds (0: always). `kernel_s`: shortest kernel on the device.
    `host_s_per_kernel`: Python and launch time of one forward kernel in an eager loop.
    `spread_frac`: what a prediction from these is off by at 90 %, as a share.
    """

    family: str
    dtype: str
    matmul_frac: float
    attention_frac: float
    memory_frac: float
    wave_outputs: float
    full_power_w_per_tflop: float
    kernel_s: float
    host_s_per_kernel: float
    spread_frac: float
    source: Source
    origin: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkBytes:
    """Memory outside tensors: device context and libraries, and the workspace of matrix libraries, by family."""

    family: str
    context_bytes: int
    workspace_bytes: int
    communicator_bytes: int
    source: Source
    origin: str = ""
    date: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionKey:
    """What a correction holds for: one stack on one device, and models of this very size.

    A factor learnt from a small model says nothing about a large one of its family, nor one with frozen embeddings
    about one that learns them: what it corrects (launches, matrix products, loading) weighs differently in each.
    `loss`, `attention`: kernels; empty in corrections from before they were told.
    """

    device: str
    model_family: str
    precision: str
    method: str
    num_params: int = 0
    num_trainable: int = 0
    stack: str = ""
    loss: str = ""
    attention: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Measured over predicted, from `num_runs` runs of one stack: factors on step time and on memory.

    `start_s`: measured seconds from the command to the first step, None where no run told. `memory_parts`:
    factors on the parts of a memory estimate (estimators.residual), which other models of the stack take, with
    `memory_fixed_bytes` beside them; `memory_variant`: of the run that told them (`RunConfig.variant`).
    """

    key: CorrectionKey
    time_factor: float
    memory_factor: float
    num_runs: int
    date: str
    start_s: float | None = None
    memory_parts: Mapping[str, float] = field(default_factory=dict)
    memory_fixed_bytes: float = 0.0
    memory_variant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """All that estimates need to know about speed beside the device's own sheet."""

    speeds: tuple[SpeedShares, ...]
    frameworks: tuple[FrameworkBytes, ...]
    constants: Mapping[str, float] = field(default_factory=dict)
    corrections: tuple[Correction, ...] = ()
    constant_sources: Mapping[str, Source] = field(default_factory=dict)
    _found: dict[tuple[str, str], SpeedShares] = field(init=False, repr=False, compare=False, default_factory=dict)

    def speed(self, device: Device, dtype: str) -> SpeedShares:
        """The shares of `device` in `dtype`: by device name, then family, then kind, then any."""
        key = (f"{device.name} {device.kind}", dtype)
        if key not in self._found:  # asked for by every candidate of a plan
            self._found[key] = self._search(device, dtype)
        return self._found[key]

    def _search(self, device: Device, dtype: str) -> SpeedShares:
        by_key = {(row.family, row.dtype): row for row in self.speeds}
        for family in families(device):
            for form in (dtype, ANY):
                if (family, form) in by_key:
                    return by_key[family, form]
        raise LookupError(f"no efficiency row covers {device.name} {dtype}")  # the table ends in a row `*,*`

    def framework(self, device: Device) -> FrameworkBytes:
        """Memory outside tensors on `device`: by device name, then family, then kind, then any."""
        by_family = {row.family: row for row in self.frameworks}
        for family in families(device):
            if family in by_family:
                return by_family[family]
        raise LookupError(f"no framework row covers {device.name}")

    def correction(self, key: CorrectionKey) -> Correction | None:
        """The newest correction of this device, model, precision, method and kernels; the stack's own first."""
        same = [c for c in self.corrections if _without_stack(_with_kernels(c.key, key)) == _without_stack(key)]
        exact = [c for c in same if key.stack and c.key.stack == key.stack]
        return max(exact or same, key=lambda c: c.date, default=None)

    def memory_correction(self, key: CorrectionKey, variant: str) -> Correction | None:
        """The newest run of another model of this stack and family that tells memory's parts; `variant`'s own first.

        Time does not carry over: of published stacks a factor learnt on one model made others worse as often as better.
        """
        other = replace(_without_stack(key), num_params=0, num_trainable=0)
        related = [
            c
            for c in self.corrections
            if c.memory_parts
            and replace(_without_stack(_with_kernels(c.key, key)), num_params=0, num_trainable=0) == other
        ]
        same = [c for c in related if c.memory_variant in ("", variant)]
        return max(same or related, key=lambda c: c.date, default=None)


def _with_kernels(known: CorrectionKey, wanted: CorrectionKey) -> CorrectionKey:
    """`known`, where it does not tell its kernels with those that are asked for."""
    return replace(known, loss=known.loss or wanted.loss, attention=known.attention or wanted.attention)


def families(device: Device) -> tuple[str, ...]:
    """Names under which a table may know `device`, most special first: name, `sm90`, architecture, kind, any."""
    capability = device.compute_capability
    generation = (f"sm{capability[0]}{capability[1]}",) if capability else ()
    return (device.name, *generation, device.architecture, device.kind, ANY)


def _without_stack(key: CorrectionKey) -> CorrectionKey:
    return replace(key, stack="")
