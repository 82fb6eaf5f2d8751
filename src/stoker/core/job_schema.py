"""Pydantic models made from the job's dataclasses: one description serves validation and the JSON schema."""

import dataclasses
import functools
import types
import typing
from typing import Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, create_model

from stoker.core.job import Job

_BOUNDS = ("gt", "ge", "lt", "le")


@functools.cache
def schema_model(section: type) -> type[BaseModel]:
    """The pydantic model of one section dataclass: unknown keys forbidden, types strict, bounds kept."""
    hints = typing.get_type_hints(section)
    fields: dict[str, Any] = {}
    for item in dataclasses.fields(section):
        if item.metadata.get("internal"):
            continue
        bounds = {name: item.metadata[name] for name in _BOUNDS if name in item.metadata}
        required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        # defaults stay with the dataclass: what the file does not set is not set here either
        default = Field(... if required else None, description=item.metadata["doc"])
        fields[item.name] = (_translate(hints[item.name], bounds), default)
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return create_model(section.__name__, __config__=config, **fields)


def _translate(hint: Any, bounds: dict[str, Any]) -> Any:
    """A dataclass hint as a pydantic one: sections become models, bounds attach to the numbers inside."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return schema_model(hint)
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        members = tuple(_translate(member, bounds) for member in typing.get_args(hint))
        return Union[members]  # noqa: UP007 (built at run time)
    if origin is Literal or hint is type(None):
        return hint
    if hint in (int, float) and bounds:
        return typing.Annotated[hint, Field(**bounds)]
    return hint


def json_schema() -> dict[str, Any]:
    """The job file's JSON schema, for editors."""
    schema = schema_model(Job).model_json_schema()
    schema["title"] = "stoker job file"
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema
