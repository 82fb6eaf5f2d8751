"""Replay of a tier schedule: bytes of GPU memory, DRAM and NVMe, and seconds that nothing hides (docs/math.md, 8).

What streams (weights, gradients, activations) hides under forward and backward as far as those last. The update
follows backward in the open, or, deferred, hides under the next forward. Flash is read and written beside the update,
or with the deferred update beside the whole step. The planner replays to predict; the engine, to fill the device.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from stoker.core.schedule import LinkSpeeds, TierSchedule, UnitPlacement, UnitSpec, pinned_bytes

_GRAD_FRAC = 0.2  # a slot of the ring also holds its piece's gradient: 2 bytes beside 10 of state


@dataclass(frozen=True, slots=True, kw_only=True)
class TierBytes:
    """Bytes of one rank by kind (weights, gradients, state, activations, buffers). `resident`: in GPU memory."""

    resident: Mapping[str, int]
    dram: Mapping[str, int]
    nvme: Mapping[str, int]

    @property
    def dram_bytes(self) -> int:
        return sum(self.dram.values())

    @property
    def nvme_bytes(self) -> int:
        return sum(self.nvme.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSeconds:
    """Of one optimizer step. `exposed_s` is what the step waits; the rest are whole durations, hidden or not.

    `nvme_written_bytes`: wear of a step. `resident_frac`: share of what learns that the GPU updates in its memory.
    """

    exposed_s: float
    stream_s: float
    update_s: float
    nvme_s: float
    nvme_written_bytes: int
    resident_frac: float


def replay_bytes(schedule: TierSchedule) -> TierBytes:
    """What each tier holds at the fullest moment."""
    pairs = list(zip(schedule.units, schedule.placements, strict=True))
    kept = schedule.kept_boundaries
    buffers = _device_buffers(schedule, pairs)
    dram = dict.fromkeys(("weights", "gradients", "state", "activations", "buffers"), 0)
    nvme = dict.fromkeys(("weights", "state", "activations"), 0)
    for unit, place in pairs:
        for kind, tier, size in (
            ("weights", place.weights, unit.weight_bytes),
            ("state", place.state, unit.state_bytes),
            ("activations", place.activations, round(unit.boundary_bytes * kept)),
        ):
            dram[kind] += pinned_bytes(size, exact=schedule.exact_pinned) if tier == "dram" else 0
            nvme[kind] += size if tier == "nvme" else 0
        on_host = unit.trainable_params * schedule.cpu_grad_bytes if place.update == "cpu" else unit.grad_bytes
        if place.update == "cpu" or place.gradients == "dram":
            dram["gradients"] += pinned_bytes(round(on_host), exact=schedule.exact_pinned)
    flash = max((u.state_bytes for u, p in pairs if p.state == "nvme"), default=0)
    flash += max((u.weight_bytes for u, p in pairs if p.weights == "nvme"), default=0)
    dram["buffers"] = (schedule.prefetch_units + 1) * pinned_bytes(flash, exact=schedule.exact_pinned)
    return TierBytes(
        resident={
            "weights": sum(u.weight_bytes for u, p in pairs if p.weights == "hbm"),
            "gradients": sum(u.grad_bytes for u, p in pairs if p.gradients == "hbm"),
            "state": sum(u.state_bytes for u, p in pairs if p.state == "hbm"),
            "activations": sum(_kept_beside(u, p, schedule) for u, p in pairs if p.activations == "hbm"),
            "buffers": buffers,
        },
        dram=dram,
        nvme=nvme,
    )


def _kept_beside(unit: UnitSpec, place: UnitPlacement, schedule: TierSchedule) -> int:
    """Bytes that a unit's kept inputs add to its gradient buffer: layer by layer they lie in it as far as they fit."""
    room = unit.grad_bytes if schedule.layer_major and place.gradients == "hbm" and place.update != "cpu" else 0
    return max(round(unit.boundary_bytes * schedule.kept_boundaries) - room, 0)


def _device_buffers(schedule: TierSchedule, pairs: list[tuple[UnitSpec, UnitPlacement]]) -> int:
    """Double buffers of what streams, the ring of state pieces, and one unit's fp32 sums in a layer-major step."""
    size = _window([u.weight_bytes if p.weights != "hbm" else 0 for u, p in pairs], schedule.prefetch_units + 1)
    size += _window([u.grad_bytes if p.gradients != "hbm" else 0 for u, p in pairs], 2)
    size += _window([u.boundary_bytes if p.activations != "hbm" else 0 for u, p in pairs], 2)
    streamed = max((u.state_bytes for u, p in pairs if p.update == "gpu_stream"), default=0)
    size += round((1.0 + _GRAD_FRAC) * schedule.ring_pieces * min(schedule.piece_bytes, streamed))
    if schedule.layer_major and schedule.micro_batches > 1:
        size += 4 * max((u.trainable_params for u, _p in pairs), default=0)
    return size


def _window(sizes: list[int], count: int) -> int:
    """The most that `count` neighbouring units take: what stands at once while one passes after the other."""
    return max((sum(sizes[index : index + count]) for index in range(len(sizes))), default=0)


def replay_seconds(schedule: TierSchedule, speeds: LinkSpeeds, *, forward_s: float, backward_s: float) -> TierSeconds:
    """What a step waits for. `forward_s`, `backward_s`: compute of the whole step."""
    pairs = list(zip(schedule.units, schedule.placements, strict=True))
    stream_s, first_s = _stream(schedule, speeds, pairs)
    update_s = _update(schedule, speeds, pairs)
    nvme_s, written = _flash(schedule, speeds, pairs)
    compute_s = forward_s + backward_s
    exposed = stream_s if schedule.prefetch_units == 0 else max(stream_s - compute_s, 0.0) + first_s
    if schedule.deferred_update:
        free_s = max(forward_s - 0.5 * min(stream_s, compute_s), 0.0)
        exposed += max(update_s - free_s, 0.0)
        exposed += max(nvme_s - compute_s - exposed, 0.0)
    else:
        exposed += update_s + max(nvme_s - update_s, 0.0)
    learns = sum(u.trainable_params for u, _p in pairs)
    here = sum(u.trainable_params for u, p in pairs if p.update == "resident")
    return TierSeconds(
        exposed_s=exposed,
        stream_s=stream_s,
        update_s=update_s,
        nvme_s=nvme_s,
        nvme_written_bytes=written,
        resident_frac=here / learns if learns else 1.0,
    )


def _stream(
    schedule: TierSchedule, speeds: LinkSpeeds, pairs: list[tuple[UnitSpec, UnitPlacement]]
) -> tuple[float, float]:
    """(seconds of weights, gradients and activations over the host link, seconds of the first unit's weights)."""
    rounds = 1 if schedule.layer_major else schedule.micro_batches
    up = down = 0
    for unit, place in pairs:
        if place.weights != "hbm":
            up += 2 * rounds * unit.weight_bytes
        elif place.update == "cpu":  # the new weights come back
            up += unit.weight_bytes
        if place.gradients != "hbm" and unit.trainable_params:
            down += rounds * unit.grad_bytes
        elif place.update == "cpu":
            down += unit.grad_bytes
        if place.activations != "hbm":
            crossing = round(schedule.micro_batches * schedule.mean_boundary_frac * unit.boundary_bytes)
            up += crossing
            down += crossing
    first = max((u.weight_bytes for u, p in pairs if p.weights != "hbm"), default=0)
    seconds = both_ways_s(up / speeds.to_device_bytes_per_s, down / speeds.from_device_bytes_per_s, speeds.duplex_frac)
    return seconds, first / speeds.to_device_bytes_per_s


def both_ways_s(up_s: float, down_s: float, duplex_frac: float) -> float:
    """Two directions at once: the shorter one at a share of its speed, the rest of the longer one at full speed."""
    shorter, longer = sorted((up_s, down_s))
    return shorter / duplex_frac + longer - shorter


def _update(schedule: TierSchedule, speeds: LinkSpeeds, pairs: list[tuple[UnitSpec, UnitPlacement]]) -> float:
    """CPU lane: DRAM traffic (case 35: 30 bytes a parameter). Streamed: state up and down again."""
    on_cpu = sum(u.trainable_params for u, p in pairs if p.update == "cpu")
    streamed = sum(u.state_bytes for u, p in pairs if p.update == "gpu_stream")
    one_way_s = streamed / min(speeds.to_device_bytes_per_s, speeds.from_device_bytes_per_s)
    return on_cpu * schedule.update_bytes_per_param / speeds.dram_bytes_per_s + one_way_s / speeds.duplex_frac


def _flash(
    schedule: TierSchedule, speeds: LinkSpeeds, pairs: list[tuple[UnitSpec, UnitPlacement]]
) -> tuple[float, int]:
    """(seconds, bytes written): state is read and written, weights are read for every pass and written once."""
    rounds = 2 * (1 if schedule.layer_major else schedule.micro_batches)
    state = sum(u.state_bytes for u, p in pairs if p.state == "nvme")
    weights = sum(u.weight_bytes for u, p in pairs if p.weights == "nvme")
    written = state + sum(u.weight_bytes for u, p in pairs if p.weights == "nvme" and u.trainable_params)
    read_s = (state + rounds * weights) / speeds.nvme_read_bytes_per_s
    return read_s + written / speeds.nvme_write_bytes_per_s, written
