"""One reading of a sensor: a number, or the reason why there is none. A missing sensor is a value, never a crash."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Reading:
    """`value` in the unit that the field's name says; None with a `reason` in the user's language."""

    value: float | None
    reason: str = ""

    @classmethod
    def missing(cls, reason: str) -> Self:
        """No value, because of `reason`."""
        return cls(None, reason)

    @property
    def num_bytes(self) -> int | None:
        """The value as whole bytes."""
        return None if self.value is None else int(self.value)
