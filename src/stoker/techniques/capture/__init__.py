"""Capture: how the step's kernels are launched."""

from stoker.techniques.capture.compiled import Compiled
from stoker.techniques.capture.eager_loop import EagerLoop
from stoker.techniques.lookup import find_technique
from stoker.techniques.protocols import CaptureTechnique

CAPTURES: tuple[CaptureTechnique, ...] = (EagerLoop(), Compiled())


def capture(name: str) -> CaptureTechnique:
    """The capture called `name`. Raises PlanningError ST380."""
    return find_technique("capture", CAPTURES, name)
