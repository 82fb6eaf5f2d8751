"""One stable code: what `stoker explain` says about it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """`number` such as ST012, `title` a few words, `meaning` what happened, `cure` what to do (English msgids)."""

    number: str
    title: str
    meaning: str
    cure: str
