"""How much wider an interval gets for what had to be assumed: one rule for plans and for `stoker validate`."""

from math import sqrt
from typing import Final

_WIDER_FRAC: Final = 0.25  # for each thing assumed: form of a GPU, kind of an adapter, a batch, part of a model


def widening(num_assumed: int) -> float:
    """Factor on the interval; several assumptions add as independent ones do. 1 where nothing was assumed."""
    return 1.0 + _WIDER_FRAC * sqrt(num_assumed)


def widened_bytes(low: float, high: float, factor: float) -> tuple[float, float]:
    """5 % and 95 % points of memory, widened on both sides."""
    return low / factor, high * factor


def widened_spread(spread_frac: float, factor: float) -> float:
    """Relative spread of a step's time: the usual one times `factor`, and what the assumption itself may be off."""
    return spread_frac * factor + (factor - 1.0)
