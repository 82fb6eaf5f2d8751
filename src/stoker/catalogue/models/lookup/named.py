"""Names of tables beyond the bundled shapes: data/published.json and data/image_facts.csv.

published.json holds models that no run can train (code of their own, benchmark models of a trainer, vision-language
models, which jobs may name for a plan) and names of models that have the shape of another (`vicuna-7b` is a Llama 2).
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from stoker.catalogue.tables import read_rows

_DATA: Final = Path(__file__).parents[2] / "data" / "published.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """One model and its names. `is_approximate`: the shape leaves something out, which `note` says.

    `image_tokens`: what an image adds to the length, for vision-language models.
    """

    hub_id: str
    names: tuple[str, ...]
    config: Mapping[str, Any]
    is_approximate: bool = False
    note: str = ""
    image_tokens: int | None = None


@functools.cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads(_DATA.read_text(encoding="utf-8"))
    return table


def same_shape_names() -> Mapping[str, str]:
    """Name -> hub id of the model that has its shape."""
    names: Mapping[str, str] = _table()["same_shape"]
    return names


def named_models() -> tuple[NamedModel, ...]:
    """The models of published.json, then the image networks known by facts."""
    rows = tuple(
        NamedModel(
            hub_id=row["hub_id"],
            names=(row["hub_id"], *row["aliases"]),
            config=MappingProxyType(row["config"]),
            is_approximate=row.get("approximate", False),
            note=row.get("note", ""),
            image_tokens=row.get("image_tokens"),
        )
        for row in _table()["models"]
    )
    return rows + tuple(_image_facts(row) for row in read_rows("image_facts.csv"))


def _image_facts(row: Mapping[str, str]) -> NamedModel:
    config = {
        "model_type": "image_facts",
        "num_params": int(row["num_params"]),
        "image_size": int(row["image_size"]),
        "facts_image_size": int(row["image_size"]),
        "gmacs": float(row["gmacs"]),
        "grouped_gmacs": float(row["grouped_gmacs"]),
        "kept_melements": float(row["kept_melements"]),
        "score_melements": float(row["score_melements"]),
        "kernels": int(row["kernels"]),
    }
    return NamedModel(hub_id=f"timm/{row['name']}", names=(row["name"],), config=MappingProxyType(config))
