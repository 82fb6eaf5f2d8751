"""Whether a folder's weights are all there and whole, from names, sizes and safetensors headers; nothing is loaded.

A pickle is never opened: it can run code. Sources: safetensors' README (format), transformers' index files.
"""

from pathlib import Path, PurePosixPath
from typing import Any

from stoker.catalogue.models.lookup.config_file import read_config
from stoker.core.errors import ModelError
from stoker.core.i18n import _
from stoker.core.safetensors_header import read_header

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth", "model.ckpt")
_MAX_SHARDS = 10_000


def check_weights(folder: Path) -> None:
    """Raises ModelError: ST207 (missing or truncated), ST208 (pickle only), ST209 (index points outside)."""
    if (folder / INDEX).is_file():
        for name in shard_names(folder / INDEX):
            _check_file(folder / name)
    elif (folder / SINGLE).is_file():
        _check_file(folder / SINGLE)
    else:
        raise _no_weights(folder)


def shard_names(index: Path) -> list[str]:
    """File names of an index, each inside its folder. Raises ModelError ST203 or ST209."""
    table: Any = read_config(index, most=200_000_000).get("weight_map")
    if not isinstance(table, dict) or not table or not all(isinstance(name, str) for name in table.values()):
        raise ModelError(
            "ST203",
            _("the index names no shards"),
            place=str(index),
            fix=_("fetch the file again from where the model was published"),
        )
    names = sorted(set(table.values()))
    for name in names[:_MAX_SHARDS]:
        if not name.endswith(".safetensors") or not _is_inside(name):
            raise ModelError(
                "ST209",
                _("the index names {name}, which is no safetensors file of this folder").format(name=repr(name)[:80]),
                place=str(index),
                fix=_("do not use this model folder unless you know who changed it; fetch it again"),
            )
    return names[:_MAX_SHARDS]


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    return not path.is_absolute() and len(path.parts) == 1 and path.parts[0] not in ("..", ".") and ":" not in name


def _check_file(path: Path) -> None:
    try:
        if not path.is_file():
            raise ValueError(_("the file is missing"))
        if path.stat().st_size == 0:
            raise ValueError(_("the file is empty (0 bytes)"))
        read_header(path)
    except (ValueError, OSError) as error:
        raise ModelError(
            "ST207",
            _("weights are incomplete: {name}: {reason}").format(name=path.name, reason=error),
            place=str(path),
            fix=_("fetch this file again: the download or copy was cut short"),
        ) from error


def _no_weights(folder: Path) -> ModelError:
    pickled = [name for name in _PICKLES if (folder / name).exists()]
    pickled += [file.name for file in sorted(folder.glob("pytorch_model*.bin"))[:1]]
    if pickled:
        return ModelError(
            "ST208",
            _("the weights are a pickle ({name}), which stoker never opens: a pickle can run code").format(
                name=pickled[0]
            ),
            place=str(folder),
            fix=_(
                "convert it where you trust it: load the model with transformers, then "
                "model.save_pretrained(FOLDER) writes model.safetensors"
            ),
        )
    return ModelError(
        "ST207",
        _("the folder has a config.json but no weights (model.safetensors)"),
        place=str(folder),
        fix=_("fetch the weights, or name the config.json itself to start from random weights"),
    )
