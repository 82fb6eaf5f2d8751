"""`stoker report` as a user meets it: exit codes, files, stdout apart from the talk, languages and code pages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from report_samples import finished_lines, plan, write_record

from stoker.cli.main import main
from stoker.core.i18n import set_language


def run(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["report", *arguments])
    set_language("en")
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_record(tmp_path / "first")


def test_one_run_as_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(str(folder), "--no-elsewhere", capsys=capsys)
    assert status == 0
    assert "predicted beside measured" in out
    assert err == ""


def test_the_record_itself_may_be_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(folder / "record.jsonl"), "--no-elsewhere", capsys=capsys)[0] == 0


def test_every_form_at_once(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    html, png, out = tmp_path / "new" / "r.html", tmp_path / "r.png", tmp_path / "r.json"
    arguments = ("--json", "--html", str(html), "--png", str(png), "-o", str(out), "--no-elsewhere")
    status, stdout, err = run(str(folder), *arguments, capsys=capsys)
    assert (status, stdout) == (0, "")
    assert err.count("wrote ") == 3
    assert html.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert json.loads(out.read_text(encoding="utf-8"))["runs"][0]["name"] == "first"


def test_markdown_and_json_on_stdout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(folder), "--md", "--no-elsewhere", capsys=capsys)[1].startswith("# run first\n")
    assert json.loads(run(str(folder), "--json", "--no-elsewhere", capsys=capsys)[1])["schema_version"] == 1


def test_several_runs(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_record(tmp_path / "second", finished_lines()[:4], end=None)
    status, out, _err = run(str(folder), str(other), capsys=capsys)
    assert status == 0
    assert "2 runs side by side" in out


def test_a_folder_without_a_record_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path, tmp_path / "none"):
        status, out, err = run(str(path), "--json", capsys=capsys)
        assert status == 2
        assert json.loads(out)["error"]["code"] == "ST601"
        assert "ST601" in err


def test_a_damaged_record_names_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "record.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[3] = "{not json"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    status, _out, err = run(str(folder), capsys=capsys)
    assert status == 2
    assert "ST602" in err and "record.jsonl:4" in err


def test_a_torn_last_line_is_what_a_kill_leaves(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "record.jsonl"
    file.write_text(file.read_text(encoding="utf-8")[:-30], encoding="utf-8")
    status, out, _err = run(str(folder), "--no-elsewhere", capsys=capsys)
    assert status == 0
    assert "running, or killed" in out


def test_a_record_of_a_newer_schema_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = write_record(tmp_path / "new", header={"schema_version": 99})
    status, _out, err = run(str(newer), capsys=capsys)
    assert status == 2 and "newer stoker" in err


def test_a_file_that_is_no_record_is_not_called_a_newer_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    page.write_text("<!doctype html>\n", encoding="utf-8")
    status, _out, err = run(str(page), capsys=capsys)
    assert status == 2 and "no record" in err and "newer" not in err


def test_a_report_that_cannot_be_written(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _out, err = run(str(folder), "--html", str(tmp_path), "--no-elsewhere", capsys=capsys)
    assert status == 2
    assert "ST604" in err


def test_korean(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "예측과 측정" in run(str(folder), "--lang", "ko", "--no-elsewhere", capsys=capsys)[1]


@pytest.mark.parametrize("encoding", ["cp949", "ascii"])
def test_a_console_of_another_code_page(folder: Path, encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "stoker", "report", str(folder), "--lang", "ko", "--no-elsewhere"],
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode(encoding)
    assert "####" in text
    if encoding == "cp949":
        assert "손실" in text and "?" not in text


def test_the_same_run_is_priced_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The embedded job planned again over what clouds rent, from the record alone: its data need not be here."""
    from stoker.core.plan import ResolvedModel

    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": 30000,
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
    }
    small = plan(model=ResolvedModel(name="small-bert", config=config))
    status, out, _err = run(str(write_record(tmp_path / "r", of_plan=small)), "--json", capsys=capsys)
    assert status == 0
    run_json = json.loads(out)["runs"][0]
    assert run_json["notes"] == []
    assert len(run_json["elsewhere"]) >= 4
    clusters = [row["cluster"] for row in run_json["elsewhere"]]
    assert len({name.split(" x ")[1] for name in clusters}) == len(clusters)  # the best of each GPU
    priced = [row["cost"] for row in run_json["elsewhere"] if row["cost"]]
    assert priced and all(cost["total_usd"] > 0 and cost["as_of"] for cost in priced)


def test_what_cannot_be_priced_is_a_note(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample's model has no config: the report goes on and says so."""
    status, out, _err = run(str(folder), "--json", capsys=capsys)
    assert status == 0
    assert any("not priced elsewhere" in note for note in json.loads(out)["runs"][0]["notes"])
