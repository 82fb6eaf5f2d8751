"""What pydantic says about a value, in the user's language: one sentence part an error type, with its bound."""

from collections.abc import Mapping
from typing import Any

from stoker.core.i18n import N_, _

_SHOWN_CHARS = 80
_REASONS: Mapping[str, str] = {
    "greater_than": N_("it must be above {gt}"),
    "greater_than_equal": N_("it must be at least {ge}"),
    "less_than": N_("it must be below {lt}"),
    "less_than_equal": N_("it must be at most {le}"),
    "finite_number": N_("it must be a finite number"),
    "int_parsing": N_("it must be a whole number"),
    "float_parsing": N_("it must be a number"),
    "int_type": N_("it must be a whole number"),
    "int_from_float": N_("it must be a whole number"),
    "int_parsing_size": N_("it must be a whole number of ordinary size"),
    "float_type": N_("it must be a number"),
    "string_type": N_("it must be a word or text; put quotes around a number"),
    "string_unicode": N_("it must be valid text"),
    "bool_type": N_("it must be true or false"),
    "list_type": N_("it must be a list: [a, b]"),
    "dict_type": N_("it must be a mapping of keys"),
    "mapping_type": N_("it must be a mapping of keys"),
    "model_type": N_("it must be a mapping of keys"),
    "literal_error": N_("it must be {expected}"),
}


def reason_of(problem: Mapping[str, Any]) -> str:
    """The sentence part for one of pydantic's errors; pydantic's own words for a type that is not listed."""
    sentence = _REASONS.get(problem["type"])
    if sentence is None:
        text = str(problem["msg"])
        return text[:1].lower() + text[1:]
    facts = {name: _plain(value) for name, value in (problem.get("ctx") or {}).items()}
    if problem["type"] == "literal_error":
        facts["expected"] = str(problem["ctx"]["expected"]).replace(" or ", _(" or "))
    return _(sentence).format(**facts)


def shown_value(value: Any) -> str:
    """`value` as a job file would write it, at most 80 characters."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def _plain(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
