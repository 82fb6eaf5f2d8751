"""A schedule without a plan: what leaves the device for given budgets, by a rule that can be read in one minute.

State leaves first (it is touched once a step), then kept inputs, then gradients, then weights (touched twice); within
each unit by unit, as `placement/tiers.py` orders them, until a replay of the schedule fits: so whatever the device can
hold stays on it. What DRAM cannot hold of the state goes to flash. The planner picks by replaying schedules too; this
rule is for a plain PyTorch loop, for benchmarks and tests.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stoker.core.run_config import TierShares
from stoker.core.schedule import LinkSpeeds, TierBudgets, TierSchedule, UnitPlacement, UnitSpec
from stoker.engine.tiers.layout import UnitLayout
from stoker.techniques.placement import TIERS
from stoker.techniques.placement.replay import replay_bytes
from stoker.techniques.placement.tiers import leaving_order

# a host that nobody measured: one PCIe 5 link, DRAM of some 16 cores, one disk
TYPICAL = LinkSpeeds(
    to_device_bytes_per_s=50e9,
    from_device_bytes_per_s=50e9,
    duplex_frac=0.88,
    dram_bytes_per_s=120e9,
    nvme_read_bytes_per_s=2e9,
    nvme_write_bytes_per_s=2e9,
)
_LEAST_PIECE_BYTES, _STAGING_PIECES = 1 << 20, 8  # staging takes an eighth of a tight DRAM
_ORDER = ("state", "activations", "gradients", "weights")
ENGINE_SHARES = TierShares(state=0.0, layer_major=True, exact_pinned=True, lossless_state=True)

# Working memory of a block's backward with recomputation, as a multiple of the inputs and outputs of its products, and
# of the units around the blocks in bytes a parameter (fp32 sum of the head's gradient, its 16-bit copy, logits of one
# chunk); both from the peaks of W1 and W3 on an H200 (benchmarks/LOG.md)
_BLOCK_TRAFFIC, _OUTER_BYTES_PER_PARAM = 1.6, 7
_FRAGMENTS_FRAC = 0.025  # of the budget, between torch's segments (expandable ones)


def all_on_device(units: Sequence[UnitSpec], micro_batches: int) -> TierSchedule:
    """Everything in the device's memory: the same executor, no copies."""
    return TierSchedule(
        units=tuple(units),
        placements=tuple(
            UnitPlacement(unit=unit.name, update="resident" if unit.trainable_params else "none") for unit in units
        ),
        micro_batches=micro_batches,
        layer_major=True,
        deferred_update=True,
        exact_pinned=True,
    )


def schedule_for(
    units: Sequence[UnitSpec],
    budgets: TierBudgets,
    *,
    micro_batches: int,
    speeds: LinkSpeeds = TYPICAL,
    shares: TierShares = ENGINE_SHARES,
) -> TierSchedule:
    """The schedule that keeps as much on the device as fits beside the fullest unit's `working_bytes`.

    `shares`: prefetch, lane and formats are taken from it, what leaves is not.

    The result may exceed the budgets: the trainer refuses it then, with numbers.
    """
    sizes = {
        "state": [unit.state_bytes for unit in units],
        "activations": [micro_batches * unit.boundary_bytes for unit in units],
        "gradients": [unit.grad_bytes for unit in units],
        "weights": [unit.weight_bytes for unit in units],
    }
    away = dict.fromkeys(_ORDER, 0.0)
    room = (1.0 - _FRAGMENTS_FRAC) * budgets.hbm_bytes - max((unit.working_bytes for unit in units), default=0)

    def made(nvme: float = 0.0) -> TierSchedule:
        chosen = replace(shares, **away, nvme=nvme)  # type: ignore[arg-type]
        schedule = TIERS.schedule(units, chosen, speeds, micro_batches=micro_batches)
        return replace(schedule, deferred_update=True, staging_pieces=_STAGING_PIECES)

    for part, share in _steps_away(sizes):
        if sum(replay_bytes(made()).resident.values()) <= room:
            break
        away[part] = share
    on_host = sum(away[part] * sum(sizes[part]) for part in _ORDER)
    limit = on_host if budgets.dram_bytes is None else float(budgets.dram_bytes)
    state_away = away["state"] * sum(sizes["state"])
    if on_host <= limit or not state_away:
        return made()
    piece = made().piece_bytes
    piece = max(_LEAST_PIECE_BYTES, min(piece, int(limit) // (8 * _STAGING_PIECES) // 4096 * 4096))
    return replace(made(min(1.0, (on_host - limit + _STAGING_PIECES * piece) / state_away)), piece_bytes=piece)


def as_planned(units: Sequence[UnitSpec], planned: TierSchedule, *, micro_batches: int) -> TierSchedule | None:
    """The plan's schedule over the engine's own units; None where the plan saw another chain of units."""
    if [unit.trainable_params for unit in units] != [unit.trainable_params for unit in planned.units]:
        return None
    places = zip(units, planned.placements, strict=True)
    return replace(
        planned,
        units=tuple(units),
        placements=tuple(replace(place, unit=unit.name) for unit, place in places),
        micro_batches=micro_batches,
        layer_major=True,
        deferred_update=True,
        exact_pinned=True,
    )


def _steps_away(sizes: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, float]]:
    """(part, share of it that is off the device) after each unit that leaves."""
    for part in _ORDER:
        total, gone = sum(sizes[part]), 0
        for index in leaving_order(len(sizes[part])):
            if sizes[part][index]:
                gone += sizes[part][index]
                yield part, gone / total


def specs_of(layouts: Sequence[UnitLayout], boundary_bytes: int) -> list[UnitSpec]:
    """What a placement is chosen from: blocks keep their inputs, the units around them nothing.

    Working memory by a rule of thumb from the shapes of weights: a block computed again and differentiated holds the
    inputs and outputs of its products and its own gradients; the units around the blocks hold a gradient summed in fp32
    and a chunk of logits.
    """
    last = len(layouts) - 1
    specs = []
    for index, layout in enumerate(layouts):
        if 0 < index < last:
            working = round(_BLOCK_TRAFFIC * _traffic(layout) * boundary_bytes) + layout.grad_bytes
            specs.append(replace(layout.spec(boundary_bytes), working_bytes=working))
        else:
            working = _OUTER_BYTES_PER_PARAM * layout.num_trainable + 4 * boundary_bytes
            specs.append(replace(layout.spec(0), working_bytes=working))
    return specs


def _traffic(layout: UnitLayout) -> float:
    """Inputs and outputs of a block's products over its own input."""
    shapes = [tuple(shape) for shape in layout.shapes.values() if len(shape) == 2]
    shapes += [tuple(held.shape) for held in layout.frozen if len(held.shape) == 2]
    sides = [side for shape in shapes for side in shape]
    return sum(sides) / max(sides, key=sides.count) if sides else 0.0
