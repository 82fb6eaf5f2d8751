"""jsonl (one object a line) and json (one array of objects): strict JSON, no NaN, no duplicate keys, bounded depth."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stoker.core.codec import dumps, loads
from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.data.delimited import capped_lines
from stoker.data.encodings import detect_encoding
from stoker.data.table import Table, compose_name, require_columns

_MAX_ARRAY_BYTES = 1 << 30
_MAX_NAMES = 10_000
_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # or half of a pair: looked at more closely


def read_json_lines(file: Path, wanted: tuple[str, ...], *, encoding: str | None) -> Table:
    """The `wanted` keys of every line; a key that a line lacks is None. Raises DataError ST104 to ST110."""
    codec = detect_encoding(file, encoding)
    return _collect(file, _line_objects(file, codec), wanted, codec)


def read_json_array(file: Path, wanted: tuple[str, ...], *, encoding: str | None) -> Table:
    """The `wanted` keys of every object of the file's one array (at most 1 GiB). Raises DataError ST104 to ST110."""
    if file.stat().st_size > _MAX_ARRAY_BYTES:
        raise DataError(
            "ST109",
            _("a json array above 1 GiB is not read at once"),
            place=str(file),
            fix=_("write it as jsonl: one object a line"),
        )
    codec = detect_encoding(file, encoding)
    whole = parse_object(file.read_text(encoding=codec), str(file), kind=list)
    return _collect(file, enumerate(whole, 1), wanted, codec)


def parse_object(text: str, place: str, kind: type = dict) -> Any:
    """Strict JSON of one `kind` (dict or list). Raises DataError ST107 at `place`."""
    try:
        value = loads(text)
    except RecursionError:
        raise _broken(_("nested too deeply"), place) from None
    except ValueError as error:
        raise _broken(str(error), place) from error
    if _LONE_SURROGATE.search(text) and not _is_text(value):
        raise _broken(_("half of a character (a lone surrogate) is no text"), place)
    if not isinstance(value, kind):
        raise _broken(_("not an object") if kind is dict else _("not an array of objects"), place)
    return value


def _is_text(value: Any) -> bool:
    """Whether all of `value` can be written as UTF-8: JSON's escapes can spell halves of characters."""
    try:
        dumps(value).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _line_objects(file: Path, codec: str) -> Iterator[tuple[int, Any]]:
    with file.open(encoding=codec, errors="strict", newline="\n") as stream:
        for number, line in enumerate(capped_lines(stream, file), 1):
            if line.strip():
                yield number, parse_object(line, f"{file}:{number}")


def _collect(file: Path, objects: Iterable[tuple[int, Any]], wanted: tuple[str, ...], codec: str) -> Table:
    columns: dict[str, list[Any]] = {name: [] for name in wanted}
    names: dict[str, str] = {}
    row_numbers: list[int] = []
    for number, value in objects:
        if not isinstance(value, dict):
            raise _broken(_("not an object"), f"{file}:{number}")
        for key in value:
            if key not in names and len(names) < _MAX_NAMES:
                names[key] = compose_name(key)
        composed = value if all(key.isascii() for key in value) else {compose_name(k): v for k, v in value.items()}
        row_numbers.append(number)
        for name, column in columns.items():
            column.append(composed.get(name))
    if row_numbers:
        require_columns(file, wanted, names.values())
    return Table(file=file, names=tuple(names.values()), columns=columns, row_numbers=row_numbers, encoding=codec)


def _broken(problem: str, place: str) -> DataError:
    return DataError(
        "ST107",
        _("not valid JSON: {problem}").format(problem=problem),
        place=place,
        fix=_("one JSON object a line; no NaN, no key twice, strings in double quotes"),
    )
