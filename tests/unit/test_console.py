"""Proves that talk on stderr never stops the work: a reader that has gone, or a stream that is closed, loses lines in
silence; and that advice of libraries to their callers stays off stderr unless python is asked to show it."""

import io
import os
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
