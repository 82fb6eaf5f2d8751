"""Placement: in which memory tier weights, gradients, state and activations live."""

from stoker.techniques.lookup import find_technique
from stoker.techniques.placement.hbm import Hbm
from stoker.techniques.placement.tiers import Tiers
from stoker.techniques.protocols import PlacementTechnique

TIERS = Tiers()
PLACEMENTS: tuple[PlacementTechnique, ...] = (Hbm(), TIERS)


def placement(name: str) -> PlacementTechnique:
    """The placement called `name`. Raises PlanningError ST380."""
    return find_technique("placement", PLACEMENTS, name)
