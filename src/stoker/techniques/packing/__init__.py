"""Packing: how the samples of one optimizer step become micro-batches, and how many tokens those hold."""

from stoker.techniques.lookup import find_technique
from stoker.techniques.packing.bucketed import Bucketed
from stoker.techniques.packing.padded import Padded
from stoker.techniques.protocols import PackingTechnique

PACKINGS: tuple[PackingTechnique, ...] = (Bucketed(), Padded())


def packing(name: str) -> PackingTechnique:
    """The packing called `name`. Raises PlanningError ST380 (`packed` is not built yet)."""
    return find_technique("packing", PACKINGS, name)
