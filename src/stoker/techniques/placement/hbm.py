"""Everything in the device's own memory: no transfers, nothing on the host."""

from dataclasses import replace
from typing import ClassVar

from stoker.core.ledger import Ledger


class Hbm:
    """One tier."""

    __slots__ = ()

    name: ClassVar[str] = "hbm"
    can_run: ClassVar[bool] = True

    def apply(self, ledger: Ledger) -> Ledger:
        """The ledger as it is."""
        return replace(ledger, passes=(*ledger.passes, self.name))
