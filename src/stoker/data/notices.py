"""One thing about the data that a person should know although it stops nothing: a code and a sentence."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Notice:
    """`code` such as ST150 (taught by `stoker explain`), `text` already in the user's language."""

    code: str
    text: str

    def __str__(self) -> str:
        return f"[{self.code}] {self.text}"
