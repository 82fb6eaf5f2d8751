"""Proves that talk on stderr never stops the work: a reader that has gone, or a stream that is closed, loses lines in
silence; and that advice of libraries to their callers stays off stderr unless python is asked to show it."""

import io
import json
import os
import re
import subprocess
import sys
import warnings

import pytest

from stoker.cli import console
from stoker.cli.main import main


def _talk_into_a_broken_pipe(code: str) -> "subprocess.CompletedProcess[str]":
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writer, text=True, timeout=60, check=False
        )
    finally:
        os.close(writer)


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes")
@pytest.mark.parametrize(
    "talk", ["console.notice('x' * 100_000)", "console.talk().print('x' * 100_000)", "console.notice('한글')"]
)
def test_a_reader_that_has_gone_stops_nothing(talk: str) -> None:
    done = _talk_into_a_broken_pipe(f"from stoker.cli import console\n{talk}\n{talk}\nprint('worked on')")
    assert done.stdout == "worked on\n" and done.returncode == 0


def test_a_closed_stream_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    console.notice("nobody hears this")


def test_advice_of_libraries_stays_off_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(), pytest.raises(SystemExit):
        warnings.simplefilter("default")
        main(["--version"])
        warnings.warn("use the other name", FutureWarning, stacklevel=1)
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes")
def test_an_answer_that_nobody_reads_ends_in_silence_with_0() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "stoker", "explain", "ST012"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def _stoker(*arguments: str, **streams: object) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "stoker", *arguments]
    kept = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(command, timeout=60, check=False, **kept)  # type: ignore[call-overload,no-any-return]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux")  # noqa: PTH110
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_full_disk_behind_stdout_is_no_bug(flags: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = _stoker("explain", "ST012", *flags, stdout=full)
    assert done.returncode == 2 and b"ST502" in done.stderr and b"bug" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="POSIX shells")
@pytest.mark.parametrize("flags", ["", "--json"])
def test_a_closed_stdout_is_no_bug(flags: str) -> None:
    command = f"'{sys.executable}' -m stoker explain ST012 {flags} >&-"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("encoding", ["utf-8", "cp949", "ascii"])
def test_json_reads_as_utf8_whatever_the_terminals_encoding(encoding: str) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding, "STOKER_LANG": "ko", "PYTHONUTF8": "0"}
    title = json.loads(_stoker("explain", "ST012", "--json", env=env).stdout.decode("utf-8"))["title"]
    assert title == "허용되지 않는 값"


@pytest.mark.parametrize("wrong", [["frob"], ["plan"], ["plan", "x", "--nope"], ["offers", "--count", "x"]])
@pytest.mark.parametrize("language", ["en", "ko"])
def test_wrong_usage_is_an_error_like_any_other(
    wrong: list[str], language: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_LANG", language)
    with pytest.raises(SystemExit) as stopped:
        main([*wrong, "--json"])
    out, err = capsys.readouterr()
    assert stopped.value.code == 2
    error = json.loads(out)["error"]
    assert error["code"] == "ST009" and error["place"].startswith("stoker") and error["fix"]
    assert (language == "ko") == bool(re.search("[가-힣]", error["problem"]))
    assert "[ST009]" in err


def test_a_language_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["explain", "ST012", "--lang", "fr"])
    assert stopped.value.code == 2 and "en, ko" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["", "init", "check", "plan", "run", "predict", "report", "offers", "doctor", "explain"]
)
def test_help_pages_are_korean_to_the_last_word(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_LANG", "ko")
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    page = capsys.readouterr().out
    left = re.findall(r"Usage:|Arguments:|Options:|Commands:|Show this|completion for|\[required|\[default", page)
    assert page and not left


def test_text_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A label or a file name may hold escape sequences and marks that turn the direction of a line."""
    console.print_answer("a\x1b[2J\u202eb\tc\n한글")
    console.notice("\x9b0m")
    out, err = capsys.readouterr()
    assert out == "a\\u001b[2J\\u202eb\tc\n한글\n" and err == "\\u009b0m\n"
