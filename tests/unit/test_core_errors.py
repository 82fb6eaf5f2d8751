"""Errors and codes: every error carries place, problem and fix, survives a process boundary, and can be explained."""

import json
import re
import subprocess
import sys

import pytest

from stoker.cli.main import main
from stoker.core import errors
from stoker.core.codes import ALL_CODES, find_code
from stoker.core.errors import BadInput, DataError, InternalError, JobFileError, StokerError, _rebuild
from stoker.core.i18n import set_language

RANGES = {
    errors.JobFileError: "0",
    errors.DataError: "1",
    errors.ModelError: "2",
    errors.PlanningError: "3",
    errors.RunError: "4",
    errors.EnvironmentProblem: "5",
    errors.RecordError: "6",
}


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def test_an_error_reads_code_place_problem_fix() -> None:
    error = JobFileError("ST010", "unknown key x", place="job.yaml:3", fix="did you mean y?")
    assert str(error) == "[ST010] job.yaml:3: unknown key x\n  -> did you mean y?"


def test_names_of_the_user_cannot_break_the_message() -> None:
    """Line breaks, terminal controls, marks that turn the direction, and 100 kB in one word."""
    text = str(DataError("ST101", "no file", place="a\nb\x1b[2J\u202ec.csv", fix="x" * 100_000))
    assert "a\\nb\\x1b[2J\\u202ec.csv: no file" in text
    assert text.count("\n") == 1 and len(text) < 4000
    assert "한글 이름.csv" in str(DataError("ST101", "no file", place="한글 이름.csv"))


def test_exit_codes_stand_in_the_tree() -> None:
    assert {kind.exit_code for kind in RANGES} == {2}
    assert all(issubclass(kind, BadInput) for kind in RANGES)
    assert InternalError("ST999", "x").exit_code == 1


def test_an_error_survives_reduction() -> None:
    """Worker processes send errors by their parts; nothing may get lost."""
    error = DataError("ST101", "문제", place="a.csv:2", fix="고치세요")
    rebuild, parts = error.__reduce__()
    assert rebuild is _rebuild
    again = _rebuild(*parts)  # type: ignore[arg-type]
    assert (type(again), str(again), again.fix) == (DataError, str(error), "고치세요")


def test_codes_are_unique_complete_and_well_formed() -> None:
    numbers = [code.number for code in ALL_CODES]
    assert len(numbers) == len(set(numbers))
    for code in ALL_CODES:
        assert re.fullmatch(r"ST[0-6]\d\d", code.number)
        assert code.title and code.meaning.endswith(".") and code.cure.endswith(".")


def test_a_code_is_found_in_any_case() -> None:
    found = find_code(" st012 ")
    assert found is not None and found.number == "ST012"
    assert find_code("ST9999") is None


def test_explain_teaches_each_code(capsys: pytest.CaptureFixture[str]) -> None:
    for code in ALL_CODES:
        status, out, _err = run("explain", code.number, capsys=capsys)
        assert status == 0
        assert code.meaning in out and code.cure in out


def test_explain_in_korean_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _err = run("explain", "ST012", "--json", "--lang", "ko", capsys=capsys)
    assert status == 0
    found = json.loads(out)
    assert found["code"] == "ST012"
    assert re.search("[가-힣]", found["meaning"])
    set_language("en")


def test_an_unknown_code_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run("explain", "ST998", "--json", capsys=capsys)
    assert status == 2
    assert json.loads(out)["error"]["fix"]
    assert "ST998" in err


def test_usage_errors_exit_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "--no-such-flag", capsys=capsys)[0] == 2
    assert run("no-such-command", capsys=capsys)[0] == 2


def test_a_bug_exits_one_and_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import stoker.core.codes

    def broken(_number: str) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(stoker.core.codes, "find_code", broken)
    status, out, err = run("explain", "ST012", capsys=capsys)
    assert (status, out) == (1, "")
    assert "ZeroDivisionError" in err and "STOKER_TRACEBACK" in err


def test_the_console_survives_a_korean_windows_code_page() -> None:
    """cp949 and ASCII consoles get `?` for what they lack, never a traceback."""
    for encoding in ("cp949", "ascii"):
        done = subprocess.run(
            [sys.executable, "-m", "stoker", "explain", "ST012", "--lang", "ko"],
            capture_output=True,
            env={"PYTHONIOENCODING": encoding, "PATH": "", "PYTHONUTF8": "0"},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_every_error_kind_is_in_the_tree() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, StokerError)]
    assert {k.__name__ for k in kinds} == {
        "StokerError",
        "BadInput",
        "InternalError",
        *(kind.__name__ for kind in RANGES),
    }
