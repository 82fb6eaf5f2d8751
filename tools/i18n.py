"""The catalogue of what a person reads: found in the source, kept in locale/*.po, compiled to *.mo.

`python tools/i18n.py update`   find the strings, bring stoker.pot and every .po up to date, compile
`python tools/i18n.py check`    exit 1 where a string is untranslated, a placeholder differs, or a .mo is stale
`python tools/i18n.py missing`  the untranslated strings as JSON, for a translator: {language: [string, ...]}
`python tools/i18n.py fill FILE` take translations from a JSON file: {language: {string: translation}}

Strings are the literals inside `_()` and `N_()`, and the `doc=` sentences of job-file keys. Babel is needed here
only; at run time the standard library's gettext reads the compiled catalogue.
"""

import ast
import gettext
import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "stoker"
LOCALE = SOURCE / "locale"
TEMPLATE = LOCALE / "stoker.pot"
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)  # a fixed date: catalogues change only when strings do
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")


def find_strings(source: Path = SOURCE) -> dict[str, list[str]]:
    """msgid -> the files that use it (relative to the repository), in order of files and lines."""
    found: dict[str, list[str]] = {}
    for file in sorted(source.rglob("*.py")):
        name = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.name
        for text in _strings_of(ast.parse(file.read_text(encoding="utf-8"))):
            places = found.setdefault(text, [])
            if name not in places:
                places.append(name)
    return found


def _strings_of(tree: ast.AST) -> Iterator[str]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    for call in sorted(calls, key=lambda c: (c.lineno, c.col_offset)):
        assert isinstance(call.func, ast.Name)
        texts: list[ast.expr] = []
        if call.func.id in ("_", "N_"):
            texts = call.args[:1]
        elif call.func.id == "key":
            texts = [keyword.value for keyword in call.keywords if keyword.arg == "doc"]
        for text in texts:
            yield from _literals(text)


def _literals(node: ast.expr) -> Iterator[str]:
    """The string literals that `node` may be: one, or both arms of a conditional."""
    if isinstance(node, ast.IfExp):
        yield from _literals(node.body)
        yield from _literals(node.orelse)
    elif isinstance(node, ast.JoinedStr):
        raise SystemExit(f"line {node.lineno}: an f-string cannot be translated: use .format() after _()")
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield node.value


def _catalog(locale: str | None = None) -> Catalog:
    return Catalog(
        locale=locale,
        header_comment="# What stoker says to people. `python tools/i18n.py update` writes this file.\n#",
        project="stoker",
        version="0.1",
        copyright_holder="the stoker authors",
        msgid_bugs_address="see CONTRIBUTING.md",
        last_translator="the stoker authors",
        language_team="the stoker authors",
        creation_date=_EPOCH,
        revision_date=_EPOCH,
        fuzzy=False,
    )


def po_files() -> list[Path]:
    """Every translation's .po file."""
    return sorted(LOCALE.glob("*/LC_MESSAGES/stoker.po"))


def read_catalog(po: Path) -> Catalog:
    """The .po file as a catalogue."""
    with po.open("rb") as stream:
        return read_po(stream, locale=po.parts[-3])


def update() -> None:
    """Template, .po and .mo files from the source. Translations of strings that are gone are dropped."""
    strings = find_strings()
    template = _catalog()
    for text, places in strings.items():
        template.add(text, locations=[(place, 0) for place in places])
    _write(template, TEMPLATE)
    for po in po_files():
        old = read_catalog(po)
        fresh = _catalog(po.parts[-3])
        for text, places in strings.items():
            known = old.get(text)
            fresh.add(text, known.string if known else "", locations=[(place, 0) for place in places])
        _write(fresh, po)
        compile_catalog(po)


def _write(catalog: Catalog, file: Path) -> None:
    with file.open("wb") as stream:
        write_po(stream, catalog, width=110, include_lineno=False, sort_by_file=False)


def compile_catalog(po: Path) -> None:
    """The .mo file beside `po`."""
    with po.with_suffix(".mo").open("wb") as stream:
        write_mo(stream, read_catalog(po))


def untranslated(po: Path) -> list[str]:
    """Strings of the source without a translation in `po`, in order of the source."""
    catalog = read_catalog(po)
    return [text for text in find_strings() if not _string(catalog.get(text))]


def _string(message: Message | None) -> str:
    return str(message.string) if message is not None and message.string else ""


def problems(po: Path) -> list[str]:
    """What is wrong with a translation, one line each."""
    catalog = read_catalog(po)
    found = [f"untranslated: {text!r}" for text in untranslated(po)]
    for message in catalog:
        if message.id and _string(message):
            here, there = (sorted(_PLACEHOLDER.findall(t)) for t in (str(message.id), _string(message)))
            if here != there:
                found.append(f"placeholders differ: {message.id!r} {here} {there}")
    mo = po.with_suffix(".mo")
    if not mo.is_file():
        return [*found, "not compiled"]
    with mo.open("rb") as stream:
        compiled = gettext.GNUTranslations(stream)
    stale = [m.id for m in catalog if m.id and _string(m) and compiled.gettext(str(m.id)) != _string(m)]
    return found + [f"the .mo is stale: {text!r}" for text in stale]


def fill(file: Path) -> None:
    """Translations of a JSON file into the .po files. Raises KeyError for a string that is not in the source."""
    given: dict[str, dict[str, str]] = json.loads(file.read_text(encoding="utf-8"))
    update()
    for po in po_files():
        catalog = read_catalog(po)
        for text, translation in given.get(po.parts[-3], {}).items():
            message = catalog.get(text)
            if message is None:
                raise KeyError(text)
            message.string = translation
        _write(catalog, po)
        compile_catalog(po)


def main(arguments: list[str]) -> int:
    """The commands of the module's first paragraph."""
    command = arguments[0] if arguments else ""
    if command == "update":
        update()
    elif command == "fill" and len(arguments) == 2:
        fill(Path(arguments[1]))
    elif command == "missing":
        print(json.dumps({po.parts[-3]: untranslated(po) for po in po_files()}, ensure_ascii=False, indent=1))
    elif command == "check":
        lines = [f"{po.parts[-3]}: {line}" for po in po_files() for line in problems(po)]
        print("\n".join(lines) or "catalogues are complete")
        return 1 if lines else 0
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
