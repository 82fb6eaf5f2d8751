"""A tier schedule: where each unit's weights, gradients, state and activations live, and which lane updates them.

Pure data, JSON-able by `core/codec.py`: a technique in `placement/` emits it, the estimator replays it to bytes and
seconds, an executor executes it. A unit is what is fetched, computed and freed as one: the embedding, each block,
the final norm and head. Units stand in the order of forward; backward passes them in reverse.
"""

from dataclasses import dataclass
from typing import Literal

from stoker.core.estimate import Source

Tier = Literal["hbm", "dram", "nvme"]
UpdateLaneName = Literal["none", "resident", "gpu_stream", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSpec:
    """One unit on one rank, bytes. `state_bytes`: moments and masters, as they lie off the GPU.

    `boundary_bytes`: the input kept at its recompute boundary for one micro-batch (0: nothing is recomputed there).
    `working_bytes`: GPU memory that computing it needs beside all that is placed, where the engine says (0: unsaid).
    """

    name: str
    weight_bytes: int
    grad_bytes: int
    state_bytes: int
    trainable_params: int
    boundary_bytes: int = 0
    working_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpeeds:
    """bytes/s of one rank's share of each link. `duplex_frac`: what one direction keeps when both are at work."""

    to_device_bytes_per_s: float
    from_device_bytes_per_s: float
    duplex_frac: float
    dram_bytes_per_s: float
    nvme_read_bytes_per_s: float
    nvme_write_bytes_per_s: float
    source: Source = Source.ASSUMED


@dataclass(frozen=True, slots=True, kw_only=True)
class TierBudgets:
    """Bytes that one rank may use of each tier; None: unknown, so not a limit that can be checked."""

    hbm_bytes: int
    dram_bytes: int | None = None
    nvme_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPlacement:
    """Tiers of one unit's parts. `update`: where its optimizer step runs (none: nothing in it learns)."""

    unit: str
    weights: Tier = "hbm"
    gradients: Tier = "hbm"
    state: Tier = "hbm"
    activations: Tier = "hbm"
    update: UpdateLaneName = "resident"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSchedule:
    """`units` and `placements` pair up. A step has `micro_batches`.

    `prefetch_units`: units fetched ahead; so many buffers stand on the GPU, and one more for the unit at work.
    `layer_major`: all micro-batches of a step pass a unit before the next one, so weights cross the link twice a step
    and gradients once; else as often as there are micro-batches. `deferred_update`: the update of a unit runs under
    the next forward, just before the unit is needed (exact clipping without waiting); else all updates follow backward.
    `mean_boundary_frac`: boundary of a mean micro-batch over that of the fullest, which `UnitSpec` holds: what a
    layer-major step keeps of all its micro-batches together is their mean.
    `piece_bytes`, `ring_pieces`: state goes through a ring of pieces, in and out. `staging_pieces`: pieces in DRAM
    through which state on flash is read ahead and written back. `exact_pinned`: host buffers have
    their exact size; else each rounds up to a power of two, as torch's pinned allocator does.
    `update_bytes_per_param`: DRAM traffic of a CPU step. `cpu_grad_bytes`: of one parameter's gradient on the host.
    """

    units: tuple[UnitSpec, ...]
    placements: tuple[UnitPlacement, ...]
    micro_batches: int
    prefetch_units: int = 1
    layer_major: bool = False
    deferred_update: bool = False
    exact_pinned: bool = False
    mean_boundary_frac: float = 1.0
    piece_bytes: int = 32 * 2**20
    ring_pieces: int = 8
    staging_pieces: int = 8
    update_bytes_per_param: float = 30.0
    cpu_grad_bytes: float = 4.0

    def __post_init__(self) -> None:
        names = [unit.name for unit in self.units]
        if names != [placement.unit for placement in self.placements] or len(set(names)) != len(names):
            raise ValueError("a schedule needs one placement a unit, in the units' order")

    @property
    def kept_boundaries(self) -> float:
        """Boundaries of the fullest micro-batch that the kept ones of a step amount to."""
        return max(self.micro_batches * self.mean_boundary_frac, 1.0) if self.layer_major else 1.0


def pinned_bytes(num_bytes: int, *, exact: bool) -> int:
    """Host memory of a pinned buffer of `num_bytes`: torch's allocator rounds up to a power of two (case 33)."""
    if exact or num_bytes <= 0:
        return max(num_bytes, 0)
    return 1 << (num_bytes - 1).bit_length()
