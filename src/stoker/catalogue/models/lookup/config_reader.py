"""Typed, bounded access to a model config: each wrong value is a ModelError that names its key and place."""

import math
from collections.abc import Mapping
from typing import Any

from stoker.core.errors import ModelError
from stoker.core.i18n import _

MAX_SIZE = 10**7  # widths, vocabularies, positions: ten times what any published model has
MAX_LAYERS = 10_000


class ConfigReader:
    """A config over its family's defaults, keys already canonical. `place` is printed in errors.

    All methods raise ModelError ST205.
    """

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self.values = values
        self.place = place

    @property
    def model_type(self) -> str:
        """The Hugging Face model_type."""
        return str(self.values["model_type"])

    def size(self, key: str, *, most: int = MAX_SIZE, least: int = 1) -> int:
        """A required whole number between `least` and `most`."""
        value = self.values.get(key)
        if isinstance(value, float) and value.is_integer() and math.isfinite(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, _("a whole number is needed, this is {value}").format(value=_short(value)))
        if not least <= value <= most:
            raise self.wrong(key, _("{value} is not between {least} and {most}").format(**_range(value, least, most)))
        return value

    def optional_size(self, key: str, *, most: int = MAX_SIZE) -> int | None:
        """A size, or None where the key is null or absent."""
        return None if self.values.get(key) is None else self.size(key, most=most)

    def layers(self, key: str = "num_hidden_layers") -> int:
        """Number of layers."""
        return self.size(key, most=MAX_LAYERS)

    def frac(self, key: str) -> float:
        """A share in [0, 1), 0 where null or absent: dropout rates."""
        value = self.values.get(key)
        if value is None:
            return 0.0
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value < 1.0:
            raise self.wrong(key, _("a share from 0 to below 1 is needed, this is {value}").format(value=_short(value)))
        return float(value)

    def number(self, key: str, *, least: float, most: float) -> float:
        """A finite number between `least` and `most`."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise self.wrong(key, _("{value} is not between {least} and {most}").format(**_range(value, least, most)))
        return float(value)

    def flag(self, key: str) -> bool:
        """True or false; null counts as false."""
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self.wrong(key, _("true or false is needed, this is {value}").format(value=_short(value)))

    def text(self, key: str) -> str:
        """A word, such as an activation's name."""
        value = self.values.get(key)
        if isinstance(value, str) and 0 < len(value) <= 64:
            return value
        raise self.wrong(key, _("a word is needed, this is {value}").format(value=_short(value)))

    def sizes(
        self, key: str, *, length: int | None = None, most: int = MAX_SIZE, least: int = 1, may_be_empty: bool = False
    ) -> tuple[int, ...]:
        """A list of sizes between `least` and `most`, of `length` where given; null is an empty list."""
        value = self.values.get(key)
        if may_be_empty and (value is None or value == []):
            return ()
        if not isinstance(value, (list, tuple)) or not 0 < len(value) <= MAX_LAYERS:
            raise self.wrong(key, _("a list of whole numbers is needed, this is {value}").format(value=_short(value)))
        if length is not None and len(value) != length:
            raise self.wrong(key, _("{length} numbers are needed, there are {count}").format(
                length=length, count=len(value)))  # fmt: skip
        return tuple(ConfigReader({key: item}, self.place).size(key, most=most, least=least) for item in value)

    def edge(self, key: str) -> int:
        """A square image or patch edge: a number, or a list of two equal ones."""
        value = self.values.get(key)
        if isinstance(value, (list, tuple)):
            first, *rest = self.sizes(key, length=2)
            if rest != [first]:
                raise self.wrong(key, _("only square images are supported, this is {value}").format(value=value))
            return first
        return self.size(key, most=65536)

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list of words, or None."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise self.wrong(key, _("a list of words is needed, this is {value}").format(value=_short(value)))

    def divides(self, whole_key: str, part_key: str) -> int:
        """size(whole) / size(part), which must come out even."""
        whole, part = self.size(whole_key), self.size(part_key)
        if whole % part:
            raise self.wrong(
                part_key,
                _("{whole_key} {whole} cannot be divided by {part}").format(
                    whole_key=whole_key, whole=whole, part=part
                ),
            )
        return whole // part

    def wrong(self, key: str, problem: str) -> ModelError:
        """The error for `key`."""
        return ModelError("ST205", problem, place=f"{self.place} {key}", fix=_("correct {key}").format(key=key))


def _short(value: Any) -> str:
    return repr(value)[:60]


def _range(value: Any, least: float, most: float) -> dict[str, Any]:
    return {"value": _short(value), "least": least, "most": most}
