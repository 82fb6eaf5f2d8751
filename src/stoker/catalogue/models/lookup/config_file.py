"""Reading a config.json that may come from anyone: bounded size and depth, no NaN, no code, then its family."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker.core.codec import loads
from stoker.core.errors import ModelError
from stoker.core.i18n import _

MAX_BYTES = 5_000_000
MAX_DEPTH = 16


def read_config(path: Path, *, most: int = MAX_BYTES) -> dict[str, Any]:
    """The mapping in a config.json, or in another JSON file of at most `most` bytes.

    Raises ModelError ST202 (missing) or ST203 (unreadable).
    """
    try:
        size = path.stat().st_size
        if size > most:
            raise _unreadable(path, _("{size} bytes are too many").format(size=size))
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ModelError(
            "ST202",
            _("there is no config.json that can be read"),
            place=str(path),
            fix=_("name a Hugging Face model folder, or its config.json"),
        ) from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, _("not UTF-8 at byte {offset}").format(offset=error.start)) from error
    try:
        value = loads(text)
    except (ValueError, RecursionError) as error:
        reason = _("nested too deep") if isinstance(error, RecursionError) else str(error)
        raise _unreadable(path, reason) from error
    if not isinstance(value, dict):
        raise _unreadable(path, _("a mapping of keys is needed"))
    if _depth(value, MAX_DEPTH) > MAX_DEPTH:
        raise _unreadable(path, _("nested too deep"))
    return value


def _unreadable(path: Path, reason: str) -> ModelError:
    return ModelError(
        "ST203",
        _("{name} cannot be read: {reason}").format(name=path.name, reason=reason),
        place=str(path),
        fix=_("fetch the file again from where the model was published"),
    )


def _depth(value: Any, limit: int) -> int:
    """Depth of nesting, at most `limit` + 1."""
    if limit < 0 or not isinstance(value, (dict, list)):
        return 0
    items = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(item, limit - 1) for item in items), default=0)


def check_inline_keys(shape: Mapping[str, Any], known: frozenset[str], place: str) -> None:
    """Raises ModelError ST206 for a key that the family does not know, naming the nearest."""
    for key in shape:
        if key in known:
            continue
        near = difflib.get_close_matches(str(key), sorted(known), n=1, cutoff=0.5)
        raise ModelError(
            "ST206",
            _("unknown key {key} in the inline shape").format(key=key),
            place=place,
            fix=_("did you mean {key}?").format(key=near[0])
            if near
            else _("known keys here: {keys}").format(keys=", ".join(sorted(known))),
        )
