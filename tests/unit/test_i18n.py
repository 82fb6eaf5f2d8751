"""Korean is complete: every string of the source is translated, with the same placeholders, in a fresh catalogue."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from stoker.core import i18n
from stoker.core.i18n import N_, _, detect_language, set_language

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    pytest.importorskip("babel")
    spec = importlib.util.spec_from_file_location("i18n_tool", ROOT / "tools" / "i18n.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["i18n_tool"] = module
    spec.loader.exec_module(module)
    return module


def test_every_string_is_translated_with_its_placeholders(tool: ModuleType) -> None:
    files = tool.po_files()
    assert [file.parts[-3] for file in files] == [name for name in i18n.LANGUAGES if name != "en"]
    for po in files:
        assert tool.problems(po) == [], "run `python tools/i18n.py update`, then translate what is empty"


def test_the_extraction_finds_each_kind_of_string(tool: ModuleType) -> None:
    strings = tool.find_strings()
    assert "peak learning rate" in strings  # doc= of a job-file key
    assert "value not allowed" in strings  # N_ of a code
    assert "is a folder, not a file" in strings  # one arm of a conditional
    assert "src/stoker/core/io.py" in strings["there is no such file"]


def test_an_f_string_cannot_slip_into_the_catalogue(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text('x = _(f"{1} thing")\n', encoding="utf-8")
    with pytest.raises(SystemExit, match="f-string"):
        tool.find_strings(tmp_path)


def test_the_problems_are_found(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing translation, a lost placeholder and a stale compilation: each is seen."""
    folder = tmp_path / "ko" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    po = folder / "stoker.po"
    po.write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n\n'
        'msgid "{a} of {b}"\nmsgstr "{a}"\n\nmsgid "one"\nmsgstr "하나"\n',
        encoding="utf-8",
    )
    monkeypatch.setattr(tool, "find_strings", lambda: {"one": [], "two": [], "{a} of {b}": []})
    tool.compile_catalog(po)
    found = tool.problems(po)
    assert any("untranslated: 'two'" in line for line in found)
    assert any("placeholders differ" in line for line in found)
    assert len(found) == 2
    po.write_text(po.read_text(encoding="utf-8").replace("하나", "일"), encoding="utf-8")
    assert any("stale" in line for line in tool.problems(po))


def test_the_language_follows_flag_then_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STOKER_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "ko_KR.UTF-8")
    assert detect_language() == "ko"
    monkeypatch.setenv("LC_ALL", "C")
    assert detect_language() == "en"
    monkeypatch.setenv("STOKER_LANG", "ko")
    assert detect_language() == "ko"
    assert set_language(None) == "ko"
    assert _("the file is empty") == "파일이 비어 있습니다"
    assert set_language("en") == "en"
    assert _("the file is empty") == "the file is empty"


def test_an_empty_or_unknown_text_stays_as_it_is() -> None:
    set_language("ko")
    assert _("") == ""
    assert _("a text that is in no catalogue") == "a text that is in no catalogue"
    assert N_("value not allowed") == "value not allowed"
