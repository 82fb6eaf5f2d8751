"""Whether a model folder's weights are whole, from safetensors headers alone, before anything is loaded.

A missing or truncated shard and a folder that holds only pickles are told by name; no pickle is ever opened.
"""

import json
from pathlib import Path
from typing import Any

from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.core.safetensors_header import read_header

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack")


def weight_names(folder: Path) -> set[str]:
    """Names of all tensors in `folder`. Raises RunError ST410 to ST412 where weights are missing or cut."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = sorted(set(_read_json(index).get("weight_map", {}).values()))
    else:
        shards = ["model.safetensors"] if (folder / "model.safetensors").is_file() else []
    if not shards:
        raise _no_weights(folder)
    names: set[str] = set()
    for shard in shards:
        if Path(shard).name != shard:
            raise RunError(
                "ST411",
                _("the index points outside the folder: {shard}").format(shard=repr(shard)[:80]),
                place=str(index),
                fix=_("fetch the model again from a source you trust"),
            )
        names.update(_tensor_names(folder / shard))
    return names


def _no_weights(folder: Path) -> RunError:
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        return RunError(
            "ST412",
            _("the weights are a pickle ({name}), which could run any code when opened").format(name=pickles[0]),
            place=str(folder),
            fix=_("use the model's safetensors version, or convert it in a sandbox with a tool you trust"),
        )
    return RunError(
        "ST410",
        _("there is no model.safetensors"),
        place=str(folder),
        fix=_("fetch the model's weights into this folder; `stoker check --download` does it for a hub model"),
    )


def _tensor_names(file: Path) -> list[str]:
    if not file.is_file():
        raise RunError(
            "ST410",
            _("the shard {name} is missing").format(name=file.name),
            place=str(file.parent),
            fix=_("fetch the model again"),
        )
    try:
        return list(read_header(file))
    except (ValueError, OSError) as error:
        raise _cut(file, str(error)) from error


def _cut(file: Path, why: str) -> RunError:
    return RunError(
        "ST411",
        _("the weights are truncated or damaged: {why}").format(why=why),
        place=str(file),
        fix=_("fetch this file again"),
    )


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _cut(file, _("the index is not JSON")) from error
    return value if isinstance(value, dict) else {}
