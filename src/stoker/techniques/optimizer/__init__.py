"""Optimizers: bytes of state per trainable parameter, and torch optimizers over parameter groups."""

from stoker.techniques.lookup import find_technique
from stoker.techniques.optimizer.adafactor import Adafactor
from stoker.techniques.optimizer.adamw import AdamW
from stoker.techniques.optimizer.lion import Lion
from stoker.techniques.optimizer.low_bit import LowBitAdamW
from stoker.techniques.optimizer.muon import Muon
from stoker.techniques.optimizer.sgd import SGD
from stoker.techniques.protocols import Optimizer

OPTIMIZERS: tuple[Optimizer, ...] = (
    AdamW(),
    SGD(),
    LowBitAdamW(name="adamw_8bit", eight_bit=True, paged=False),
    LowBitAdamW(name="paged_adamw", eight_bit=False, paged=True),
    LowBitAdamW(name="paged_adamw_8bit", eight_bit=True, paged=True),
    Adafactor(),
    Lion(),
    Muon(),
)


def optimizer(name: str) -> Optimizer:
    """The optimizer called `name`. Raises PlanningError ST380."""
    return find_technique("optimizer", OPTIMIZERS, name)
