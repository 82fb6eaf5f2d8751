"""YAML text to plain values and the line of every key. Safe by construction: no tags, no bombs, no duplicates.

Numbers follow YAML 1.2's core schema (so `2e-5` is a number and `no` is a word), which is what people mean.
"""

import re
from dataclasses import dataclass
from typing import Any

import yaml

from stoker.core.errors import JobFileError
from stoker.core.i18n import _

KeyPath = tuple[str | int, ...]
MAX_BYTES = 2_000_000
_MAX_NODES = 100_000
_MAX_DEPTH = 40
_INT = re.compile(r"[-+]?[0-9][0-9_]*")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "true": True,
    "True": True,
    "false": False,
    "False": False,
}
_SPECIAL = {".inf": "inf", "-.inf": "-inf", "+.inf": "inf", ".nan": "nan"}


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """`value`: mappings, lists and scalars. `lines`: key path -> line number, from 1."""

    value: Any
    lines: dict[KeyPath, int]

    def line_of(self, path: KeyPath) -> int | None:
        """Line of `path`, or of its nearest known parent."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path)


def parse_yaml(text: str, *, place: str) -> YamlDocument:
    """Parse `text`; `place` names it in errors. Raises JobFileError ST001-ST004 with the line."""
    if len(text) > MAX_BYTES:
        raise too_large(place)
    try:
        node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{place}:{mark.line + 1}" if mark else place
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise JobFileError(
            "ST001",
            _("not valid YAML: {problem}").format(problem=problem),
            place=where,
            fix=_("check indentation, colons and quotes near this line"),
        ) from error
    if node is None:
        raise JobFileError(
            "ST002", _("the file is empty"), place=place, fix=_("`stoker init` writes a commented starter")
        )
    reader = _Reader(place)
    return YamlDocument(reader.value(node, ()), reader.lines)


def too_large(place: str) -> JobFileError:
    """The error for a file that no job file can be."""
    return JobFileError(
        "ST001",
        _("the file is larger than 2 MB"),
        place=place,
        fix=_("a job file is a page of text: check the path"),
    )


class _Reader:
    def __init__(self, place: str) -> None:
        self.place = place
        self.lines: dict[KeyPath, int] = {}
        self._count = 0

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._count += 1
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        if self._count > _MAX_NODES or len(path) > _MAX_DEPTH:
            raise JobFileError(
                "ST001",
                _("aliases or nesting expand without end"),
                place=f"{self.place}:{line}",
                fix=_("write the values out"),
            )
        if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
            raise JobFileError(
                "ST001",
                _("the tag {tag} is not allowed").format(tag=node.tag),
                place=f"{self.place}:{line}",
                fix=_("use plain values"),
            )
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, (*path, i)) for i, child in enumerate(node.value)]
        return node.value if getattr(node, "style", None) else scalar(node.value)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, child in node.value:
            line = key_node.start_mark.line + 1
            name = str(key_node.value)
            if not isinstance(key_node, yaml.ScalarNode) or name == "<<":
                raise JobFileError(
                    "ST001",
                    _("keys must be plain words"),
                    place=f"{self.place}:{line}",
                    fix=_("write the values out"),
                )
            if name in result:
                raise JobFileError(
                    "ST003",
                    _("the key {key} stands twice").format(key=name),
                    place=f"{self.place}:{line}",
                    fix=_("keep one of them (the first is on line {line})").format(line=self.lines[(*path, name)]),
                )
            self.lines[(*path, name)] = line
            result[name] = self.value(child, (*path, name))
        return result


def scalar(text: str) -> Any:
    """A plain (unquoted) scalar as YAML 1.2's core schema reads it."""
    if text in _WORDS:
        return _WORDS[text]
    if text.lower() in _SPECIAL:
        return float(_SPECIAL[text.lower()])
    if _INT.fullmatch(text):
        return int(text.replace("_", "")) if len(text) < 400 else text
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text
