"""Dataclasses to JSON and back, by their type hints. Strict on the way out (no NaN), checked on the way in."""

import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Union


def encode(value: Any) -> Any:
    """`value` as JSON types. A float that is not finite becomes null: JSON has no NaN."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value) if not f.metadata.get("internal")
        }
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def dumps(value: Any, *, indent: int | None = None) -> str:
    """`encode` and write as one JSON text, Korean readable."""
    return json.dumps(encode(value), ensure_ascii=False, indent=indent, allow_nan=False)


def loads(text: str) -> Any:
    """JSON text without NaN, Infinity or duplicate keys. Raises ValueError."""
    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("duplicate key in JSON object")
    return result


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def decode(hint: Any, value: Any, path: str = "") -> Any:
    """`value` (JSON types) as `hint`. Missing keys take their defaults. Raises ValueError naming the path."""
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _decode_dataclass(hint, value, path)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _decode_union(args, value, path)
    if origin is Literal:
        return _expect(value in args, value, path, value)
    if origin is tuple:
        _expect(isinstance(value, list), value, path, None)
        kinds = [args[0]] * len(value) if len(args) == 2 and args[1] is Ellipsis else list(args)
        _expect(len(kinds) == len(value), value, path, None)
        return tuple(decode(k, v, f"{path}[{i}]") for i, (k, v) in enumerate(zip(kinds, value, strict=True)))
    if origin in (list, frozenset):
        _expect(isinstance(value, list), value, path, None)
        return origin(decode(args[0], v, f"{path}[{i}]") for i, v in enumerate(value))
    if origin in (dict, Mapping, typing.get_origin(Mapping[str, int])):
        _expect(isinstance(value, dict), value, path, None)
        return {k: decode(args[1], v, f"{path}.{k}") for k, v in value.items()}
    return _decode_plain(hint, value, path)


def _decode_plain(hint: Any, value: Any, path: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    if hint is float:
        return _expect(isinstance(value, (int, float)) and not isinstance(value, bool), value, path, value) + 0.0
    if hint is int:
        return _expect(isinstance(value, int) and not isinstance(value, bool), value, path, value)
    if hint is type(None):
        return _expect(value is None, value, path, None)
    return _expect(isinstance(value, hint), value, path, value)


def _expect(ok: bool, value: Any, path: str, result: Any) -> Any:
    if not ok:
        raise ValueError(f"{path or 'value'}: unexpected {value!r:.60}")
    return result


def _decode_union(args: tuple[Any, ...], value: Any, path: str) -> Any:
    for member in args:
        try:
            return decode(member, value, path)
        except (ValueError, TypeError):
            continue
    raise ValueError(f"{path or 'value'}: unexpected {value!r:.60}")


def _decode_dataclass(hint: Any, value: Any, path: str) -> Any:
    _expect(isinstance(value, dict), value, path, None)
    hints = _hints(hint)
    known = {f.name for f in dataclasses.fields(hint)}
    kwargs = {k: decode(hints[k], v, f"{path}.{k}" if path else k) for k, v in value.items() if k in known}
    try:
        return hint(**kwargs)
    except TypeError as error:
        raise ValueError(f"{path or hint.__name__}: {error}") from error
