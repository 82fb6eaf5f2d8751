"""Attention as plain matrix products: the score matrix of every head is kept for backward (5as/h in 2205.05198)."""

from dataclasses import replace
from typing import ClassVar

from stoker.core.hardware import Device
from stoker.core.ledger import Ledger


class Eager:
    """Scores, softmax and dropout mask stay, each tokens x keys x heads."""

    __slots__ = ()

    name: ClassVar[str] = "eager"
    hf_name: ClassVar[str] = "eager"

    def apply(self, ledger: Ledger) -> Ledger:
        """Keeps the per-key tensors of the catalogue."""
        return replace(ledger, passes=(*ledger.passes, self.name))

    def unsupported(self, device: Device) -> str | None:
        """Always None: matrix products run everywhere."""
        return None
