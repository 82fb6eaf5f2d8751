"""The job's dataclasses as a pydantic core schema: one description serves validation and the JSON schema.

The core schema is built straight from the hints: pydantic models of the same sections would take ten times as long to
make, and every command that reads a job waits for them.
"""

import dataclasses
import functools
import types
import typing
from typing import Any, Literal, Union

from pydantic_core import CoreSchema, SchemaValidator, core_schema

from stoker.core.job import Job

_BOUNDS = ("gt", "ge", "lt", "le")


@functools.cache
def job_validator() -> SchemaValidator:
    """Checks a parsed job file: no unknown keys, strict types, bounds kept. Raises pydantic's ValidationError."""
    return SchemaValidator(_section(Job))


def json_schema() -> dict[str, Any]:
    """The job file's JSON schema, for editors."""
    from pydantic.json_schema import GenerateJsonSchema

    schema = GenerateJsonSchema().generate(_section(Job))
    schema["title"] = "stoker job file"
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def _section(section: type) -> CoreSchema:
    """One section dataclass as a mapping of its keys. What the file does not set keeps the dataclass's default."""
    hints = typing.get_type_hints(section)
    known = {}
    for item in dataclasses.fields(section):
        if item.metadata.get("internal"):
            continue
        bounds = {name: item.metadata[name] for name in _BOUNDS if name in item.metadata}
        required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        shown = {"description": item.metadata["doc"]}
        if isinstance(item.default, (str, int, float)):  # bool is an int
            shown["default"] = item.default
        known[item.name] = core_schema.typed_dict_field(
            _translate(hints[item.name], bounds), required=required, metadata={"pydantic_js_updates": shown}
        )
    config = core_schema.CoreConfig(strict=True, allow_inf_nan=False)
    return core_schema.typed_dict_schema(known, cls_name=section.__name__, extra_behavior="forbid", config=config)


def _translate(hint: Any, bounds: dict[str, Any]) -> CoreSchema:
    """A dataclass hint as a core schema: sections become mappings, bounds attach to the numbers inside."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _section(hint)
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _union(members, bounds)
    if origin is Literal:
        return core_schema.literal_schema(list(members))
    if origin is list:
        return core_schema.list_schema(_translate(members[0], {}))
    if origin is not None and issubclass(origin, typing.Mapping):
        return core_schema.dict_schema(_translate(members[0], {}), _translate(members[1], {}))
    return _PLAIN[hint](bounds)


def _union(members: tuple[Any, ...], bounds: dict[str, Any]) -> CoreSchema:
    rest = [member for member in members if member is not type(None)]
    inner = (
        _translate(rest[0], bounds)
        if len(rest) == 1
        else core_schema.union_schema([_translate(m, bounds) for m in rest])
    )
    return core_schema.nullable_schema(inner) if type(None) in members else inner


_PLAIN: dict[Any, typing.Callable[[dict[str, Any]], CoreSchema]] = {
    str: lambda _bounds: core_schema.str_schema(),
    bool: lambda _bounds: core_schema.bool_schema(),
    int: lambda bounds: core_schema.int_schema(**bounds),
    float: lambda bounds: core_schema.float_schema(**bounds),
    Any: lambda _bounds: core_schema.any_schema(),
}
