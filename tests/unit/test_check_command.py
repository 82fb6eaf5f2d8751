"""`stoker check`: what it prints as JSON and text, that plan then uses it, and no text of the data with 0 examples."""

import json
from pathlib import Path

import pytest
from data_samples import write_job, write_rows, write_wordpiece

from stoker.cli.check import visible
from stoker.cli.main import main

ROWS = [{"text": f"good film {'day ' * (i % 9)}", "label": "ab"[i % 2]} for i in range(60)]
MODEL = {
    "family": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 1000,
    "max_position_embeddings": 64,
}


@pytest.fixture
def job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_wordpiece(tmp_path / "tok")
    write_rows(tmp_path / "train.jsonl", ROWS)
    data = {"train": "train.jsonl", "text": "text", "labels": "label", "eval_frac": 0.2}
    write_job(tmp_path, data, model=MODEL)
    return tmp_path / "job.yaml"


def stoker(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return int(ended.value.code or 0)


def test_json_has_the_whole_report(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stoker("check", job_file, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    train = answer["report"]["splits"][0]
    assert train["num_samples"] == answer["profile"]["num_samples"] and train["tokens"]["maximum"] == 12
    assert sum(train["label_counts"].values()) == train["num_samples"]
    assert len(answer["report"]["examples"]) == 3
    assert answer["report"]["examples"][0]["segments"][0]["text"].startswith("[CLS] good film")
    assert {n["code"] for n in answer["notices"]} == {"ST134", "ST136"}


def test_text_shows_samples_and_what_plan_uses(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stoker("check", job_file, "--set", "train.seq_len=6") == 0
    out = capsys.readouterr().out
    assert "[CLS] good film" in out and "cut here" in out and "stoker plan" in out and "[ST145]" in out
    assert stoker("check", job_file, "--examples", "0") == 0
    assert "good film" not in capsys.readouterr().out


def test_plan_uses_what_check_measured(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from stoker.catalogue.models.api import resolve_model
    from stoker.core.estimate import Source
    from stoker.core.io import read_job
    from stoker.data.profile import quick_profile

    job = read_job(job_file)
    assert quick_profile(job, resolve_model(job)[0])[0].source is Source.ANALYTIC
    assert stoker("check", job_file) == 0
    capsys.readouterr()
    profile, notes = quick_profile(job, resolve_model(job)[0])
    assert profile.source is Source.MEASURED and not notes


def test_bad_data_exits_2_with_code_and_place(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stoker("check", job_file, "--set", "data.text=txet") == 2
    err = capsys.readouterr().err
    assert "[ST110]" in err and "did you mean text?" in err and "Traceback" not in err


def test_download_offline_is_a_clear_error(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """HF_HUB_OFFLINE is set by the fixture of all tests: nothing is asked of the network."""
    pytest.importorskip("huggingface_hub")
    assert stoker("check", job_file, "--set", "model=nobody/nothing-here", "--download") == 2
    assert "[ST181]" in capsys.readouterr().err
    assert stoker("check", job_file, "--set", "data.train=nobody/no-such-data") == 2
    assert "[ST180]" in capsys.readouterr().err


def test_text_of_the_data_cannot_steer_the_terminal() -> None:
    assert visible("a\x1b[31mb\nc\u202e") == "a·[31mb¶c·"
