"""Shapes that ship with stoker, by hub id and short name. Source: each model's published config.json, with its date."""

import difflib
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

_DATA: Final = Path(__file__).parents[2] / "data" / "models.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledModel:
    """One shape: `config` as published, keys that do not shape the model left out."""

    hub_id: str
    aliases: tuple[str, ...]
    source: str
    date: str
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The short name."""
        return self.aliases[0]


@functools.cache
def bundled_models() -> tuple[BundledModel, ...]:
    """All shapes that ship, in the order of the data file."""
    table = json.loads(_DATA.read_text(encoding="utf-8"))
    source = table["source"]
    return tuple(
        BundledModel(
            hub_id=row["hub_id"],
            aliases=tuple(row["aliases"]),
            source=row.get("source", source.format(hub_id=row["hub_id"])),
            date=row.get("date", table["date"]),
            config=MappingProxyType(row["config"]),
        )
        for row in table["models"]
    )


@functools.cache
def _by_name() -> dict[str, BundledModel]:
    names: dict[str, BundledModel] = {}
    for model in bundled_models():
        for name in (model.hub_id, *model.aliases):
            names[name.casefold()] = model
    return names


def find_bundled(name: str) -> BundledModel | None:
    """The shape called `name` (hub id or alias, any case), or None."""
    return _by_name().get(name.strip().casefold())


def nearest_bundled(name: str, count: int = 3) -> list[str]:
    """Short names and hub ids that look like `name`, best first."""
    wanted = name.strip().casefold()
    near = difflib.get_close_matches(wanted, list(_by_name()), n=12, cutoff=0.5)
    if "/" in wanted:
        near += difflib.get_close_matches(wanted.rsplit("/", 1)[-1], list(_by_name()), n=6, cutoff=0.5)
    found: list[str] = []
    for key in near:
        model = _by_name()[key]
        text = model.hub_id if key == model.hub_id.casefold() else model.name
        if model.hub_id not in found and model.name not in found:
            found.append(text)
    return found[:count]
