"""Placement: in which memory tier weights, gradients, state and activations live."""

from stoker.techniques.lookup import find_technique
from stoker.techniques.placement.hbm import Hbm
from stoker.techniques.protocols import PlacementTechnique

PLACEMENTS: tuple[PlacementTechnique, ...] = (Hbm(),)


def placement(name: str) -> PlacementTechnique:
    """The placement called `name`. Raises PlanningError ST380 (`tiers` is not built yet)."""
    return find_technique("placement", PLACEMENTS, name)
