"""Any nested state (an optimizer's, a scaler's) as tensors for safetensors and a JSON skeleton, exactly and back.

Python floats survive bit by bit: JSON holds their shortest exact form, and what JSON lacks (NaN, infinities, tuples,
mappings with other keys than words) is tagged: {"$float": "nan"}, {"$tuple": [...]}, {"$map": [[key, value], ...]},
{"$tensor": "state.0.exp_avg"}. No pickle, so loading runs no code.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

from stoker.core.safetensors_header import check_tensor_name

_MAX_DEPTH = 60


def flatten_state(state: Any) -> tuple[dict[str, torch.Tensor], Any]:
    """(tensors by name, JSON skeleton) of nested mappings, lists, tuples, numbers, words, None and tensors.

    Raises TypeError, naming the place, for anything else.
    """
    tensors: dict[str, torch.Tensor] = {}
    return tensors, _encode(state, "", tensors)


def unflatten_state(tensors: Mapping[str, torch.Tensor], skeleton: Any) -> Any:
    """What `flatten_state` took apart. Raises ValueError for a skeleton that it cannot have made."""
    return _decode(skeleton, tensors, 0)


def to_plain(value: Any) -> Any:
    """`value`, which holds no tensors, as JSON. Raises TypeError."""
    return _encode(value, "", None)


def from_plain(value: Any) -> Any:
    """What `to_plain` was given. Raises ValueError."""
    return _decode(value, {}, 0)


def _encode(value: Any, path: str, tensors: dict[str, torch.Tensor] | None) -> Any:
    if isinstance(value, torch.Tensor):
        if tensors is None:
            raise TypeError(f"{path or 'value'}: a tensor where none can be")
        name = _tensor_name(path, tensors)
        tensors[name] = value.detach()
        return {"$tensor": name}
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, tuple):
        return {"$tuple": [_encode(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]}
    if isinstance(value, list):
        return [_encode(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _encode(item, f"{path}.{key}", tensors) for key, item in value.items()}
        return {"$map": [[_encode(k, path, None), _encode(v, f"{path}.{k}", tensors)] for k, v in value.items()]}
    raise TypeError(f"{path.lstrip('.') or 'value'}: {type(value).__name__} cannot be stored")


def _tensor_name(path: str, taken: Mapping[str, torch.Tensor]) -> str:
    name = path.lstrip(".") or "tensor"
    try:
        check_tensor_name(name)
    except ValueError:
        name = "tensor"
    while name in taken:
        name = f"{name}.{len(taken)}"
    return name


def _decode(value: Any, tensors: Mapping[str, torch.Tensor], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError("the state nests too deep")
    if isinstance(value, list):
        return [_decode(item, tensors, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith("$"):
        return {key: _decode(item, tensors, depth + 1) for key, item in value.items()}
    return _decode_tag(tag, value[tag], tensors, depth)


def _decode_tag(tag: str, content: Any, tensors: Mapping[str, torch.Tensor], depth: int) -> Any:
    if tag == "$tensor" and content in tensors:
        return tensors[content]
    if tag == "$float" and content in ("nan", "inf", "-inf"):
        return float(content)
    if tag == "$tuple" and isinstance(content, list):
        return tuple(_decode(item, tensors, depth + 1) for item in content)
    if tag == "$map" and isinstance(content, list):
        pairs = [(_decode(k, tensors, depth + 1), _decode(v, tensors, depth + 1)) for k, v in content]
        return dict(pairs)
    raise ValueError(f"unknown or broken part {tag}: {content!r:.60}")
