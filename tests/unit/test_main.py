"""Proves that a command whose optional part is missing says what to install, and that only bugs are called bugs."""

import json

import pytest

from stoker.cli import app
from stoker.cli.main import main
from stoker.core.i18n import set_language


def _fail(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    def broken() -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(app, "build_app", broken)


def _main(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    return left.value.code


@pytest.mark.parametrize("module", ["torch", "transformers.utils", "peft"])
def test_a_missing_part_is_no_bug(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_language("en")
    _fail(monkeypatch, module)
    assert _main("run", "job.yaml", "--json") == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "ST501"
    assert module.split(".")[0] in err and "pip install" in err and "bug" not in err


def test_a_missing_module_of_our_own_is_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_language("en")
    _fail(monkeypatch, "stoker.planner.gone")
    assert _main("plan", "job.yaml") == 1
    assert "bug in stoker" in capsys.readouterr().err
