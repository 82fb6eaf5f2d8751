"""Optimizers: bytes of state per trainable parameter, and torch optimizers over parameter groups."""

from stoker.techniques.lookup import find_technique
from stoker.techniques.optimizer.adamw import AdamW
from stoker.techniques.optimizer.sgd import SGD
from stoker.techniques.protocols import Optimizer

OPTIMIZERS: tuple[Optimizer, ...] = (AdamW(), SGD())


def optimizer(name: str) -> Optimizer:
    """The optimizer called `name`. Raises PlanningError ST380."""
    return find_technique("optimizer", OPTIMIZERS, name)
