"""Job files and plans on disk: read, checked key by key, and written back.

A wrong key is answered with the file, the line, the nearest key that exists and the key's own sentence.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from stoker.core.codec import decode, encode
from stoker.core.errors import JobFileError
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.job_checks import check_job
from stoker.core.job_reasons import reason_of, shown_value
from stoker.core.job_yaml import MAX_BYTES, KeyPath, YamlDocument, parse_yaml, too_large


def read_job(path: Path | str, overrides: Sequence[str] = ()) -> Job:
    """Read, override and validate a job file. Raises JobFileError (ST001 to ST019) naming file, line and key.

    `overrides`: `section.key=value` texts, as `--set` takes them; values are YAML.
    """
    file = Path(path)
    document = parse_yaml(read_text(file), place=str(file))
    return job_from_document(document, overrides, place=str(file), base_dir=file.resolve().parent)


def read_text(file: Path, *, most: int = MAX_BYTES) -> str:
    """The UTF-8 text of a job or plan file (BOM allowed) of at most `most` bytes.

    Raises JobFileError ST001 (larger), ST005 (no file) or ST006 (not UTF-8).
    """
    try:
        if not file.is_file():
            raise JobFileError(
                "ST005",
                why_no_file(file),
                place=str(file),
                fix=_("`stoker init` writes a commented starter job.yaml"),
            )
        with file.open("rb") as stream:
            raw = stream.read(most + 1)  # a data file named by mistake may be larger than memory
    except (OSError, ValueError) as error:
        raise JobFileError(
            "ST005",
            getattr(error, "strerror", None) or str(error),
            place=str(file),
            fix=_("check the path and its permissions"),
        ) from error
    if len(raw) > most:
        raise too_large(str(file))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise JobFileError(
            "ST006",
            _("not UTF-8 at byte {offset}").format(offset=error.start),
            place=f"{file}:{line}",
            fix=_("save the file as UTF-8"),
        ) from error


def why_no_file(file: Path) -> str:
    """What a name is that should be a file and is none."""
    if file.is_dir():
        return _("is a folder, not a file")
    return _("is a pipe or device, not a file") if file.exists() else _("there is no such file")


def job_from_document(document: YamlDocument, overrides: Sequence[str] = (), *, place: str, base_dir: Path) -> Job:
    """A validated job from parsed YAML."""
    value = document.value
    if value is None:
        raise JobFileError(
            "ST002", _("the file is empty"), place=place, fix=_("`stoker init` writes a commented starter")
        )
    if not isinstance(value, dict):
        raise JobFileError(
            "ST004",
            _("a job file is a mapping of keys, this is not"),
            place=place,
            fix=_("start from `stoker init`"),
        )
    places = _Places(place, document)
    for text in overrides:
        _apply_override(value, text, places)
    _validate(value, places)
    job: Job = decode(Job, value)
    job = replace(job, base_dir=str(base_dir), source_path=place)
    check_job(job, places)
    return job


class _Places:
    """Key path -> what to print as its place: `file:line key`, or the override that set it."""

    def __init__(self, file: str, document: YamlDocument) -> None:
        self.file = file
        self.document = document
        self.overridden: dict[KeyPath, str] = {}

    def __call__(self, *path: str | int) -> str:
        for depth in range(len(path), 0, -1):
            if path[:depth] in self.overridden:
                return f"--set {self.overridden[path[:depth]]}"
        line = self.document.line_of(tuple(path))
        dotted = ".".join(str(part) for part in path)
        return f"{self.file}:{line} {dotted}".rstrip() if line else f"{self.file} {dotted}".rstrip()


def _apply_override(value: dict[str, Any], text: str, places: _Places) -> None:
    dotted, equals, raw = text.partition("=")
    parts = tuple(part for part in dotted.strip().split(".") if part)
    if not equals or not parts:
        raise JobFileError(
            "ST007",
            _("expected section.key=value, got {text}").format(text=repr(text)),
            place="--set",
            fix=_("for example --set train.lr=3e-5"),
        )
    target: Any = value
    for part in parts[:-1]:
        child = target.get(part)
        if not isinstance(child, dict):
            child = {}
            target[part] = child
        target = child
    target[parts[-1]] = parse_yaml(raw, place=f"--set {dotted}").value if raw.strip() else None
    places.overridden[parts] = text


def _validate(value: dict[str, Any], places: _Places) -> None:
    from pydantic import ValidationError

    from stoker.core.job_schema import job_validator

    try:
        job_validator().validate_python(value)
    except ValidationError as error:
        raise _first_problem(error.errors(), value, places) from None


def _first_problem(problems: Sequence[Mapping[str, Any]], value: dict[str, Any], places: _Places) -> JobFileError:
    """The deepest problem, in the user's words: unions report one per member, the deepest is the one meant."""
    unknown = [p for p in problems if p["type"] == "extra_forbidden"]
    missing = [p for p in problems if p["type"] == "missing"]
    problem = (unknown or missing or sorted(problems, key=lambda p: -len(_real_path(p["loc"], value))))[0]
    path = _real_path(problem["loc"], value)
    if problem["type"] == "extra_forbidden":
        known = _known_keys(path[:-1])
        near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5) or _elsewhere(str(path[-1]))
        fix = (
            _("did you mean {key}?").format(key=near[0])
            if near
            else _("known keys here: {keys}").format(keys=", ".join(known))
        )
        return JobFileError("ST010", _("unknown key {key}").format(key=path[-1]), place=places(*path), fix=fix)
    if problem["type"] == "missing":
        name = str(problem["loc"][-1])
        doc = _doc((*path, name))
        return JobFileError(
            "ST011",
            _("the key {key} is missing").format(key=name),
            place=places(*path),
            fix=_("add {key}: {doc}").format(key=name, doc=doc),
        )
    given = _value_at(value, path)
    fix = _("{key}: {doc}").format(key=path[-1] if path else "job", doc=_doc(path))
    if given is None:
        fix += "; " + _("remove the key to keep its default")
    return JobFileError(
        "ST012",
        _("{value} is not allowed here: {reason}").format(
            value=shown_value(given), reason=_reasons(problems, path, value)
        ),
        place=places(*path),
        fix=fix,
    )


def _reasons(problems: Sequence[Mapping[str, Any]], path: KeyPath, value: dict[str, Any]) -> str:
    same = [reason_of(p) for p in problems if _real_path(p["loc"], value) == path]
    return _(" or ").join(dict.fromkeys(same))


def _real_path(loc: KeyPath, value: Any) -> KeyPath:
    """`loc` without pydantic's union tags: only the parts that exist in `value`, and an unknown last key."""
    path: list[str | int] = []
    for part in loc:
        is_key = isinstance(value, dict) and part in value
        if is_key or (isinstance(value, list) and isinstance(part, int) and part < len(value)):
            value = _value_at(value, (part,))
            path.append(part)
    return tuple(path)


def _value_at(value: Any, path: KeyPath) -> Any:
    for part in path:
        value = value[part]
    return value


def _section(path: Iterable[str | int]) -> type | None:
    """The dataclass of a section, found by the declared hints."""
    import typing

    section: type = Job
    for part in path:
        hint = typing.get_type_hints(section).get(str(part))
        members = [hint, *typing.get_args(hint)]
        found = next((m for m in members if isinstance(m, type) and is_dataclass(m)), None)
        if found is None:
            return None
        section = found
    return section


def _known_keys(path: Iterable[str | int]) -> list[str]:
    section = _section(path)
    return [] if section is None else [f.name for f in fields(section) if not f.metadata.get("internal")]


def _elsewhere(name: str) -> list[str]:
    """`name` where it does exist: a key put into the wrong section."""
    sections = [f.name for f in fields(Job) if f.name in _known_keys(()) and _section((f.name,)) not in (None, Job)]
    return [f"{section}.{name}" for section in sections if name in _known_keys((section,))]


def _doc(path: KeyPath) -> str:
    section = _section(path[:-1])
    found = [f for f in fields(section) if f.name == str(path[-1])] if section and path else []
    return _(str(found[0].metadata.get("doc", ""))) if found else ""


def job_to_yaml(job: Job) -> str:
    """The resolved job as YAML, every default written out."""
    return str(yaml.safe_dump(encode(job), sort_keys=False, allow_unicode=True, width=110))
