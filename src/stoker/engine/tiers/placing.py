"""A schedule without a plan: what leaves the device for given budgets, by a rule that can be read in one minute.

State leaves first (it is touched once a step), then kept inputs, then gradients, then weights (touched twice); within
each, as `placement/tiers.py` orders units. What DRAM cannot hold of the state goes to flash. The planner picks by
replaying schedules; this rule is for a plain PyTorch loop, and for tests.
"""

from collections.abc import Sequence
from dataclasses import replace

from stoker.core.run_config import TierShares
from stoker.core.schedule import LinkSpeeds, TierBudgets, TierSchedule, UnitPlacement, UnitSpec
from stoker.techniques.placement import TIERS

# a host that nobody measured: one PCIe 5 link, DRAM of some 16 cores, one disk
TYPICAL = LinkSpeeds(
    to_device_bytes_per_s=50e9,
    from_device_bytes_per_s=50e9,
    duplex_frac=0.88,
    dram_bytes_per_s=120e9,
    nvme_read_bytes_per_s=2e9,
    nvme_write_bytes_per_s=2e9,
)
_PIECE_BYTES, _LEAST_PIECE_BYTES, _STAGING_PIECES = 64 << 20, 1 << 20, 8  # staging takes an eighth of a tight DRAM
_ORDER = ("state", "activations", "gradients", "weights")


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
    working_bytes: int = 0,
    speeds: LinkSpeeds = TYPICAL,
) -> TierSchedule:
    """The schedule of the closed-form rule. `working_bytes`: device memory of compute, left out of the budget.

    The result may exceed the budgets: the trainer refuses it then, with numbers.
    """
    sizes = {
        "state": sum(unit.state_bytes for unit in units),
        "activations": micro_batches * sum(unit.boundary_bytes for unit in units),
        "gradients": sum(unit.grad_bytes for unit in units),
        "weights": sum(unit.weight_bytes for unit in units),
    }
    over: float = sum(sizes.values()) + working_bytes - budgets.hbm_bytes
    away = dict.fromkeys(_ORDER, 0.0)
    for part in _ORDER:
        if over > 0 and sizes[part]:
            away[part] = min(1.0, over / sizes[part])
            over -= away[part] * sizes[part]
    on_host = sum(away[part] * sizes[part] for part in _ORDER)
    room = on_host if budgets.dram_bytes is None else float(budgets.dram_bytes)
    state_away = away["state"] * sizes["state"]
    piece = _PIECE_BYTES
    flash = 0.0
    if on_host > room and state_away:
        piece = max(_LEAST_PIECE_BYTES, min(piece, int(room) // (8 * _STAGING_PIECES) // 4096 * 4096))
        flash = min(1.0, (on_host - room + _STAGING_PIECES * piece) / state_away)
    shares = TierShares(
        state=away["state"],
        activations=away["activations"],
        gradients=away["gradients"],
        weights=away["weights"],
        nvme=flash,
        layer_major=True,
        exact_pinned=True,
        lossless_state=True,
    )
    schedule = TIERS.schedule(units, shares, speeds, micro_batches=micro_batches)
    return replace(schedule, deferred_update=True, piece_bytes=piece, staging_pieces=_STAGING_PIECES)
