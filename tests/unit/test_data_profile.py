"""quick_profile: measured where check was here, else sampled, else declared; and it says which."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_samples import small_model, write_job, write_rows, write_wordpiece

from stoker.core.errors import DataError
from stoker.core.estimate import Source
from stoker.data import sample
from stoker.data.prepare import prepare_data
from stoker.data.profile import quick_profile

ROWS = [
    {"text": "good film " * (i % 7 + 1), "label": "ab"[i % 2], "part": "train" if i % 10 else "dev"}
    for i in range(3000)
]
DATA: dict[str, Any] = {"text": "text", "labels": "label"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_wordpiece(tmp_path / "tok")
    return tmp_path


def test_a_checked_job_is_measured_and_a_changed_file_is_not(folder: Path) -> None:
    write_rows(folder / "t.jsonl", ROWS)
    job = write_job(folder, {**DATA, "train": "t.jsonl", "split": "part"})
    measured = prepare_data(job, small_model()).profile
    assert quick_profile(job, small_model()) == (measured, [])
    assert (
        quick_profile(
            write_job(folder, {**DATA, "train": "t.jsonl", "split": "part"}, train={"seq_len": 8}), small_model()
        )[0]
        == measured
    )
    write_rows(folder / "t.jsonl", ROWS[:100])
    profile, notes = quick_profile(job, small_model())
    assert profile.source is Source.ANALYTIC and profile.num_samples == 90 and "check" in notes[0]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_sample_stands_for_the_file(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file read at 20 places: rows within 5 %, mean length within 5 %, never a shorter longest."""
    rows = [{**row, "text": row["text"] * random.Random(i).randint(1, 3)} for i, row in enumerate(ROWS * 4)]
    file = folder / f"t.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=500)
    elif kind == "jsonl":
        write_rows(file, rows)
    else:
        file.write_text(
            "text,label,part\n" + "".join(f'"{r["text"]}",{r["label"]},{r["part"]}\n' for r in rows), encoding="utf-8"
        )
    monkeypatch.setattr(sample, "WHOLE_BELOW_BYTES", 0)
    monkeypatch.setattr(sample, "_BLOCK_BYTES", 8 << 10)
    job = write_job(folder, {**DATA, "train": file.name, "split": "part"})
    guess, notes = quick_profile(job, small_model())
    again, _notes = quick_profile(job, small_model())
    truth = prepare_data(job, small_model()).profile
    assert guess.num_samples == pytest.approx(truth.num_samples, rel=0.05)
    assert guess.num_eval_samples == pytest.approx(truth.num_eval_samples, rel=0.3)
    assert guess.lengths.mean == pytest.approx(truth.lengths.mean, rel=0.05)
    assert guess.lengths.maximum >= truth.lengths.maximum
    assert guess.num_labels == truth.num_labels == 2
    assert again == guess and notes


def test_declared_sizes(folder: Path) -> None:
    declared = {"num_samples": 790_000, "tokens_mean": 18.6, "tokens_p99": 64, "tokens_max": 458, "labels": ["a", "b"]}
    job = write_job(folder, declared, problem="multi_label")
    profile, notes = quick_profile(job, small_model(512))
    assert (profile.num_samples, profile.num_labels, profile.source) == (790_000, 2, Source.ASSUMED)
    assert profile.lengths.mean == 18.6 and profile.lengths.maximum == 458 and not notes
    job = write_job(folder, {**DATA, "num_samples": 10, "tokens_mean": 20, "eval_frac": 0.2})
    profile, notes = quick_profile(job, small_model(512))
    assert profile.num_eval_samples == 2 and "tokens_p99, tokens_max" in notes[0]


def test_absent_data_falls_back_to_what_is_declared(folder: Path) -> None:
    job = write_job(folder, {**DATA, "train": "away.csv", "num_samples": 50, "tokens_mean": 20})
    profile, notes = quick_profile(job, small_model())
    assert profile.num_samples == 50 and any("away.csv" in note for note in notes)
    with pytest.raises(DataError, match="ST101"):
        quick_profile(write_job(folder, {**DATA, "train": "away.csv"}), small_model())


def test_without_a_tokenizer_tokens_are_guessed_and_said_so(folder: Path) -> None:
    write_rows(folder / "t.jsonl", ROWS[:50])
    job = write_job(folder, {**DATA, "train": "t.jsonl"}, tokenizer=None)
    profile, notes = quick_profile(job, small_model())
    assert profile.source is Source.ASSUMED and len(notes) == 2


def test_bad_columns_are_errors_here_too(folder: Path) -> None:
    write_rows(folder / "t.jsonl", ROWS[:50])
    with pytest.raises(DataError, match="ST110"):
        quick_profile(write_job(folder, {**DATA, "train": "t.jsonl", "text": "nowhere"}), small_model())


def test_what_check_refuses_the_sample_refuses_alike(folder: Path) -> None:
    """A column twice, and pages torn inside a file whose footer is whole."""
    job = write_job(folder, {**DATA, "train": "t.parquet"})
    columns = [pa.array(["a", "b"]), pa.array(["a", "b"]), pa.array(["x", "y"])]
    pq.write_table(pa.Table.from_arrays(columns, names=["text", "text", "label"]), folder / "t.parquet")
    with pytest.raises(DataError, match="ST112"):
        quick_profile(job, small_model())
    pq.write_table(pa.table({"text": [f"a {i}" for i in range(20)], "label": ["x", "y"] * 10}), folder / "t.parquet")
    whole = (folder / "t.parquet").read_bytes()
    (folder / "t.parquet").write_bytes(whole[:10] + bytes(byte ^ 0x55 for byte in whole[10:80]) + whole[80:])
    with pytest.raises(DataError, match="ST108"):
        quick_profile(job, small_model())


def test_a_loop_of_links_is_no_absent_file(folder: Path) -> None:
    (folder / "loop.csv").symlink_to(folder / "loop.csv")
    with pytest.raises(DataError, match="ST102"):
        quick_profile(write_job(folder, {**DATA, "train": "loop.csv", "num_samples": 5}), small_model())


def test_images_that_cannot_be_reached_are_left_to_check(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / "img" / name).mkdir(parents=True)
        (folder / "img" / name / "x.png").symlink_to(folder / "img" / name / "x.png")
    job = write_job(folder, {"train": "img"}, task="image_classification")
    assert quick_profile(job, small_model())[0].num_samples == 2
