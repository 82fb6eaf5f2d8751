"""The tier schedule of a scenario, and what it makes of the memory estimate; replayed by `placement/replay.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stoker.core.estimate import MemoryEstimate, Source
from stoker.core.hardware import Cluster
from stoker.core.ledger import Ledger, ModuleGroup
from stoker.core.run_config import TierShares
from stoker.core.schedule import LinkSpeeds, TierSchedule, UnitSpec
from stoker.estimators.memory_phases import holds_gradients
from stoker.estimators.scenario import Scenario, fullest_batch, mean_batch
from stoker.techniques.parallel.gradient_bytes import gradient_bytes, weight_bytes
from stoker.techniques.placement import TIERS
from stoker.techniques.placement.replay import replay_bytes

_LOSSLESS_SAVES = 2.0  # of a 4-byte master: its high half is the 16-bit weight that the GPU holds anyway


def schedule_of(scenario: Scenario) -> TierSchedule:
    """The schedule that the configuration's shares mean for `scenario`'s fullest micro-batch."""
    shares = scenario.config.tiers or TierShares()
    fullest = fullest_batch(scenario).tokens
    units = units_of(scenario.ledger, fullest, lossless=shares.lossless_state, chained=shares.layer_major)
    speeds = assumed_speeds(scenario.cluster, scenario.efficiency.constants)
    schedule = TIERS.schedule(units, shares, speeds, micro_batches=scenario.config.gradient_accumulation_steps)
    return replace(schedule, mean_boundary_frac=min(mean_batch(scenario).tokens / fullest, 1.0))


def units_of(ledger: Ledger, tokens: float, *, lossless: bool = False, chained: bool = False) -> tuple[UnitSpec, ...]:
    """The units of a rank's ledger in forward order: every copy of a group.

    `chained`: as the tier engine cuts a model, all that comes before the blocks and all that comes after them is one
    unit each; where something else stands between blocks, nothing is joined.
    """
    units, blocks = [], []
    for group in ledger.groups:
        unit = _unit(group, ledger, tokens, lossless=lossless)
        copies = range(group.repeats)
        units += [unit] if group.repeats == 1 else [replace(unit, name=f"{group.name}.{index}") for index in copies]
        blocks += [group.kind == "block"] * group.repeats
    if not chained or True not in blocks:
        return tuple(units)
    first, last = blocks.index(True), len(blocks) - blocks[::-1].index(True)
    if not all(blocks[first:last]):
        return tuple(units)
    inner = [replace(unit, name=f"block.{index}") for index, unit in enumerate(units[first:last])]
    return (_joined("embedding", units[:first]), *inner, _joined("final", units[last:]))


def _joined(name: str, units: Sequence[UnitSpec]) -> UnitSpec:
    return UnitSpec(
        name=name,
        weight_bytes=sum(unit.weight_bytes for unit in units),
        grad_bytes=sum(unit.grad_bytes for unit in units),
        state_bytes=sum(unit.state_bytes for unit in units),
        trainable_params=sum(unit.trainable_params for unit in units),
        boundary_bytes=sum(unit.boundary_bytes for unit in units),
    )


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
