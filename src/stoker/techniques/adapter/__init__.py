"""Adapters: which parameters learn, and what that leaves in the ledger."""

from stoker.techniques.adapter.full import Full
from stoker.techniques.adapter.lora import LowRank
from stoker.techniques.adapter.qlora import QLoRA
from stoker.techniques.lookup import find_technique
from stoker.techniques.protocols import Adapter

ADAPTERS: tuple[Adapter, ...] = (Full(), LowRank(name="lora"), LowRank(name="dora", dora=True), QLoRA())


def adapter(name: str) -> Adapter:
    """The adapter called `name` (`tune.method`). Raises PlanningError ST380."""
    return find_technique("adapter", ADAPTERS, name)
