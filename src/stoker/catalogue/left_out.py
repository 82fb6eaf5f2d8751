"""Constants fitted without one source, from data/leave_out.csv: what predictions of a source never seen are made from.

`constant` says where a value goes: `constants.NAME` (efficiency_constants.csv), `speeds.FAMILY.DTYPE.FIELD`
(efficiency.csv), `stacks.*.FIELD` (the row for stacks that nobody described). tools/fit_*.py write the file.
"""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stoker.catalogue.tables import read_rows
from stoker.core.efficiency import Efficiency, SpeedShares
from stoker.core.stack import Stack


def efficiency_without(efficiency: Efficiency, source: str) -> Efficiency:
    """`efficiency` with the constants that never saw `source`; those that nothing was fitted for stay."""
    fitted = _fitted().get(source, {})
    constants = {**efficiency.constants, **_below(fitted, "constants.")}
    speeds = tuple(
        _speed_without(row, _below(fitted, f"speeds.{row.family}.{row.dtype}.")) for row in efficiency.speeds
    )
    return replace(efficiency, constants=constants, speeds=speeds)


def stack_without(stack: Stack, source: str) -> Stack:
    """The row `*` with the factors that never saw `source`."""
    changes: dict[str, Any] = _below(_fitted().get(source, {}), "stacks.*.")
    return replace(stack, **changes)


def _speed_without(row: SpeedShares, changes: dict[str, float]) -> SpeedShares:
    values: dict[str, Any] = changes
    return replace(row, **values) if values else row


def _below(fitted: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in fitted.items() if name.startswith(prefix)}


@functools.cache
def _fitted() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in read_rows("leave_out.csv"):
        found.setdefault(row["source"], {})[row["constant"]] = float(row["value"])
    return found
