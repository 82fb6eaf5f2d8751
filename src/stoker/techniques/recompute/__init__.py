"""Recomputation (activation checkpointing): what is kept between forward and backward."""

from stoker.techniques.lookup import find_technique
from stoker.techniques.protocols import RecomputeTechnique
from stoker.techniques.recompute.full import FullRecompute
from stoker.techniques.recompute.none import NoRecompute
from stoker.techniques.recompute.offloaded import OffloadedRecompute
from stoker.techniques.recompute.selective import SelectiveRecompute

RECOMPUTES: tuple[RecomputeTechnique, ...] = (
    NoRecompute(),
    SelectiveRecompute(),
    FullRecompute(),
    OffloadedRecompute(),
)


def recompute(name: str) -> RecomputeTechnique:
    """The recomputation called `name`. Raises PlanningError ST380."""
    return find_technique("recompute", RECOMPUTES, name)
