"""Memory tiers: the schedule that given shares mean, unit by unit; blocks leave the GPU before embedding and head.

The embedding's update comes last in backward and first in forward, so its state leaves last; within the blocks the
last ones leave first, because their gradients are complete first and their weights are needed again last.
A share is met by whole units, the first that reaches it closing the list. What lies on NVMe are the units that were
taken first. Lane by bandwidth: state streams through the GPU where the link both ways is faster than a third of the
DRAM, which a CPU step reads and writes three times as often.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from stoker.core.ledger import Ledger
from stoker.core.run_config import TierShares
from stoker.core.schedule import LinkSpeeds, Tier, TierSchedule, UnitPlacement, UnitSpec, UpdateLaneName


class Tiers:
    """GPU memory, DRAM and NVMe: `engine/tiers` executes the layer-major schedules, on one GPU or a CPU."""

    __slots__ = ()

    name: ClassVar[str] = "tiers"
    can_run: ClassVar[bool] = True

    def apply(self, ledger: Ledger) -> Ledger:
        """The ledger as it is: what a rank holds in all; `estimators/tiers.py` deals it out to the tiers."""
        return replace(ledger, passes=(*ledger.passes, self.name))

    def schedule(
        self, units: Sequence[UnitSpec], shares: TierShares, speeds: LinkSpeeds, *, micro_batches: int
    ) -> TierSchedule:
        """The schedule of `shares` over `units` (in forward order)."""
        lane = choose_lane(shares, speeds)
        state = _tiers(units, [unit.state_bytes for unit in units], shares.state, shares.nvme)
        weights = _tiers(units, [unit.weight_bytes for unit in units], shares.weights, shares.nvme_weights)
        grads = _tiers(units, [unit.grad_bytes for unit in units], shares.gradients, 0.0)
        kept = _tiers(units, [unit.boundary_bytes for unit in units], shares.activations, 0.0)
        placements = tuple(
            UnitPlacement(
                unit=unit.name,
                weights=weights[index],
                gradients=grads[index],
                state=state[index],
                activations=kept[index],
                update=_lane_of(unit, state[index], lane),
            )
            for index, unit in enumerate(units)
        )
        return TierSchedule(
            units=tuple(units),
            placements=placements,
            micro_batches=micro_batches,
            prefetch_units=shares.prefetch,
            layer_major=shares.layer_major,
            deferred_update=shares.layer_major,
            exact_pinned=shares.exact_pinned,
        )


def choose_lane(shares: TierShares, speeds: LinkSpeeds) -> UpdateLaneName:
    """The pinned lane, or the one that the bandwidths favour; without the engine's loop, the CPU (as others do)."""
    if shares.update != "auto":
        return "gpu_stream" if shares.update == "gpu" else "cpu"
    both_ways = speeds.duplex_frac * (speeds.to_device_bytes_per_s + speeds.from_device_bytes_per_s)
    return "gpu_stream" if shares.layer_major and both_ways > speeds.dram_bytes_per_s / 3.0 else "cpu"


def _lane_of(unit: UnitSpec, state: Tier, lane: UpdateLaneName) -> UpdateLaneName:
    if not unit.trainable_params:
        return "none"
    return "resident" if state == "hbm" else lane


def _tiers(units: Sequence[UnitSpec], sizes: Sequence[int], away_frac: float, nvme_frac: float) -> list[Tier]:
    """The tier of each unit: `away_frac` of the bytes off the GPU, `nvme_frac` of those on flash."""
    tiers: list[Tier] = ["hbm"] * len(units)
    total = sum(sizes)
    away = nvme = 0.0
    for index in leaving_order(len(units)):
        if away_frac <= 0.0 or away >= away_frac * total - 0.5 or not sizes[index]:
            continue
        away += sizes[index]
        on_flash = nvme_frac > 0.0 and nvme < nvme_frac * away_frac * total - 0.5
        nvme += sizes[index] if on_flash else 0.0
        tiers[index] = "nvme" if on_flash else "dram"
    return tiers


def leaving_order(count: int) -> list[int]:
    """Inner units from the last to the first, then the head's end, then the embedding's."""
    return [*range(count - 2, 0, -1), count - 1, 0] if count > 2 else list(range(count))[::-1]
