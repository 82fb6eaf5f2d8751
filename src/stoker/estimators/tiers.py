"""Replay of a tier schedule: bytes of GPU memory, DRAM and NVMe, and seconds that nothing hides (docs/math.md, 8).

What streams (weights, gradients, activations) hides under forward and backward as far as those last. The update
follows backward in the open, or, deferred, hides under the next forward. Flash is read and written beside the update,
or with the deferred update beside the whole step.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from stoker.core.estimate import MemoryEstimate, Source
from stoker.core.hardware import Cluster
from stoker.core.ledger import Ledger, ModuleGroup
from stoker.core.run_config import TierShares
from stoker.core.schedule import LinkSpeeds, TierSchedule, UnitPlacement, UnitSpec, pinned_bytes
from stoker.estimators.memory_phases import holds_gradients
from stoker.estimators.scenario import Scenario, fullest_batch, mean_batch
from stoker.techniques.parallel.gradient_bytes import gradient_bytes, weight_bytes
from stoker.techniques.placement import TIERS

_LOSSLESS_SAVES = 2.0  # of a 4-byte master: its high half is the 16-bit weight that the GPU holds anyway


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


def schedule_of(scenario: Scenario) -> TierSchedule:
    """The schedule that the configuration's shares mean for `scenario`'s fullest micro-batch."""
    shares = scenario.config.tiers or TierShares()
    fullest = fullest_batch(scenario).tokens
    units = tuple(units_of(scenario.ledger, fullest, lossless=shares.lossless_state))
    speeds = assumed_speeds(scenario.cluster, scenario.efficiency.constants)
    schedule = TIERS.schedule(units, shares, speeds, micro_batches=scenario.config.gradient_accumulation_steps)
    return replace(schedule, mean_boundary_frac=min(mean_batch(scenario).tokens / fullest, 1.0))


def units_of(ledger: Ledger, tokens: float, *, lossless: bool = False) -> Iterable[UnitSpec]:
    """The units of a rank's ledger in forward order: every copy of a group."""
    for group in ledger.groups:
        unit = _unit(group, ledger, tokens, lossless=lossless)
        if group.repeats == 1:
            yield unit
        else:
            yield from (replace(unit, name=f"{group.name}.{index}") for index in range(group.repeats))


def _unit(group: ModuleGroup, ledger: Ledger, tokens: float, *, lossless: bool) -> UnitSpec:
    master = group.master_bytes_per_param
    if lossless and master >= 4.0:
        master -= _LOSSLESS_SAVES
    kept = group.input_elements * ledger.compute_bytes * tokens if group.recomputed else 0.0
    return UnitSpec(
        name=group.name,
        weight_bytes=round(weight_bytes(group) / group.weight_shards),
        grad_bytes=round(gradient_bytes(group) / group.grad_shards),
        state_bytes=round((group.state_bytes + group.base_trainable * master) / group.state_shards),
        trainable_params=round(group.trainable / group.state_shards),
        boundary_bytes=round(kept),
    )


def assumed_speeds(cluster: Cluster, constants: Mapping[str, float]) -> LinkSpeeds:
    """Speeds of one rank's share of a host that nobody measured."""
    host = cluster.device.pcie_bytes_per_s * constants["tier_pcie_frac"]
    return LinkSpeeds(
        to_device_bytes_per_s=max(host, 1.0),
        from_device_bytes_per_s=max(host, 1.0),
        duplex_frac=constants["tier_duplex_frac"],
        dram_bytes_per_s=constants["tier_dram_bytes_per_s"],
        nvme_read_bytes_per_s=constants["tier_nvme_read_bytes_per_s"] / cluster.gpus_per_node,
        nvme_write_bytes_per_s=constants["tier_nvme_write_bytes_per_s"] / cluster.gpus_per_node,
        source=Source.ASSUMED,
    )


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
            "activations": round(kept * sum(u.boundary_bytes for u, p in pairs if p.activations == "hbm")),
            "buffers": buffers,
        },
        dram=dram,
        nvme=nvme,
    )


def _device_buffers(schedule: TierSchedule, pairs: list[tuple[UnitSpec, UnitPlacement]]) -> int:
    """Double buffers of what streams, the ring of state pieces, and one unit's fp32 sums in a layer-major step."""
    size = _window([u.weight_bytes if p.weights != "hbm" else 0 for u, p in pairs], schedule.prefetch_units + 1)
    size += _window([u.grad_bytes if p.gradients != "hbm" else 0 for u, p in pairs], 2)
    size += _window([u.boundary_bytes if p.activations != "hbm" else 0 for u, p in pairs], 2)
    if any(p.update == "gpu_stream" for _u, p in pairs):
        size += 2 * schedule.ring_pieces * schedule.piece_bytes
    if schedule.layer_major and schedule.micro_batches > 1:
        size += 4 * max((u.trainable_params for u, p in pairs if p.gradients != "hbm"), default=0)
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


def tiered_memory(scenario: Scenario, whole: MemoryEstimate) -> MemoryEstimate:
    """`whole` (everything in GPU memory) with what the schedule moves taken out, and its buffers put in."""
    schedule = schedule_of(scenario)
    found = replay_bytes(schedule)
    kept_before = sum(unit.boundary_bytes for unit in schedule.units)
    gradients = sum(unit.grad_bytes for unit in schedule.units)
    # fp32 sums of several micro-batches: beside what stays, unless a unit meets all of them at once
    sums = 1.0 if schedule.layer_major or not gradients else whole.terms["grads"] / gradients
    state = sum(unit.state_bytes for unit in schedule.units)
    masters = whole.terms["optimizer_states"] / state if state else 1.0  # state on the GPU keeps its masters whole
    change = {
        "params": found.resident["weights"] - sum(unit.weight_bytes for unit in schedule.units),
        "grads": round(found.resident["gradients"] * sums) - whole.terms["grads"],
        "optimizer_states": round(found.resident["state"] * masters) - whole.terms["optimizer_states"],
        "activations": found.resident["activations"] - kept_before,
        "temp_buffers": found.resident["buffers"],
    }
    phases = _phases(scenario, whole, change)
    terms = {name: max(size + change.get(name, 0), 0) for name, size in whole.terms.items()}
    context, slack = terms["framework"], terms["fragmentation"]
    # the fullest phase may be another one than without tiers: what it holds beside the other terms is temporary
    terms["temp_buffers"] = max(terms["temp_buffers"] + max(phases.values()) + slack - sum(terms.values()), 0)
    expected = sum(terms.values())
    half_down, half_up = whole.expected_bytes - whole.low_bytes, whole.high_bytes - whole.expected_bytes
    return replace(
        whole,
        low_bytes=max(expected - half_down, round(0.6 * expected)),
        expected_bytes=expected,
        high_bytes=expected + half_up,
        peak_allocated_bytes=max(expected - slack - context, 0),
        terms=terms,
        phases=phases,
        tiers={"hbm": expected, "dram": found.dram_bytes, "nvme": found.nvme_bytes},
    )


def _phases(scenario: Scenario, whole: MemoryEstimate, change: Mapping[str, int]) -> dict[str, int]:
    """Each phase of `whole` with what it held of what moved taken out; the buffers stand from the first step on.

    Every lane updates in pieces, through the ring or in DRAM: the ordinary step's transient is not there.
    """
    weights, buffers = change["params"], change["temp_buffers"]
    state = weights + change["optimizer_states"] + buffers
    gradients = change["grads"] if holds_gradients(scenario) else 0
    moved = {
        "load": weights,
        "forward": state + gradients + change["activations"],
        "backward": state + gradients + change["activations"],
        "optimizer": state + change["grads"] - round(scenario.sums.step_temp_bytes),
        "evaluation": state,
        "save": state,
    }
    return {name: max(size + moved[name], whole.terms["framework"]) for name, size in whole.phases.items()}
