"""The token cache: used again, found by content, rebuilt when damaged, and never in the way."""

import dataclasses
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from data_samples import small_model, write_job, write_rows, write_wordpiece

from stoker.core.errors import EnvironmentProblem
from stoker.core.job import Job
from stoker.data.cache import cache_root, open_or_build
from stoker.data.encoded import EncodedSplit
from stoker.data.prepare import prepare_data

ROWS = [{"text": "good film", "label": "pos"}, {"text": "bad day", "label": "neg"}]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_wordpiece(tmp_path / "tok")
    write_rows(tmp_path / "train.jsonl", ROWS)
    return write_job(tmp_path, {"train": "train.jsonl", "text": "text", "labels": "label"})


def ids(data: object) -> list[list[int]]:
    split = data.train  # type: ignore[attr-defined]
    return [[int(t) for t in split.token_ids(i)] for i in range(split.num_samples)]


def test_a_second_run_reuses_the_tokens(job: Job) -> None:
    first, second = prepare_data(job, small_model()), prepare_data(job, small_model())
    assert (first.reused, second.reused) == (False, True)
    assert ids(first) == ids(second) and first.report == second.report and first.notices == second.notices


def test_a_copy_of_the_data_shares_them_but_errors_name_the_copy(job: Job) -> None:
    prepare_data(job, small_model())
    copy = Path(job.base_dir) / "copy.jsonl"
    copy.write_bytes((Path(job.base_dir) / "train.jsonl").read_bytes())
    again = prepare_data(
        dataclasses.replace(job, data=dataclasses.replace(job.data, train="copy.jsonl")), small_model()
    )
    assert again.reused and again.train.place(0) == f"{copy}:1"


@pytest.mark.parametrize("change", ["data", "tokenizer", "seq_len"])
def test_what_matters_changes_the_key(job: Job, change: str) -> None:
    prepare_data(job, small_model())
    folder = Path(job.base_dir)
    if change == "data":
        write_rows(folder / "train.jsonl", [*ROWS, ROWS[0]])
    elif change == "tokenizer":
        write_wordpiece(folder / "tok", do_lower_case=True)
    else:
        job = dataclasses.replace(job, train=dataclasses.replace(job.train, seq_len=3))
    assert not prepare_data(job, small_model()).reused


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "meta"])
def test_a_damaged_cache_is_found_and_rebuilt(job: Job, damage: str) -> None:
    good = prepare_data(job, small_model())
    assert isinstance(good.train, EncodedSplit)
    expected, file = ids(good), good.train.path
    raw = bytearray(file.read_bytes())
    if damage == "flip":
        raw[len(raw) // 2] ^= 1
        file.write_bytes(raw)
    elif damage == "truncate":
        file.write_bytes(raw[:-1])
    elif damage == "remove":
        file.unlink()
    else:
        (file.parent / "meta.json").write_text("{", encoding="utf-8")
    again = prepare_data(job, small_model())
    assert not again.reused and "ST171" in {n.code for n in again.notices} and ids(again) == expected
    assert prepare_data(job, small_model()).reused


def test_a_failed_build_leaves_nothing(job: Job) -> None:
    def fail(folder: Path) -> dict[str, str]:
        (folder / "half").write_text("x", encoding="utf-8")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        open_or_build("tokens", "key", fail)
    assert list((cache_root() / "tokens").iterdir()) == []


def test_an_unusable_cache_is_no_obstacle(job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    data = prepare_data(job, small_model())
    assert data.train.num_samples == 2 and "ST170" in {n.code for n in data.notices}


def test_a_cache_that_fills_up_sends_the_tokens_elsewhere(job: Job) -> None:
    """Full while it is written, not before; pyarrow's own OSError carries the number too."""

    def build(folder: Path) -> dict[str, int]:
        (folder / "tokens").write_bytes(b"x")
        if folder.is_relative_to(cache_root()):
            raise OSError(errno.ENOSPC, "Error writing bytes to file")
        return {"a": 1}

    entry = open_or_build("tokens", "k", build)
    assert entry.content == {"a": 1} and not entry.folder.is_relative_to(cache_root())
    assert [n.code for n in entry.notices] == ["ST170"] and list((cache_root() / "tokens").iterdir()) == []


def test_a_small_file_that_meets_a_full_disk_leaves_no_half(tmp_path: Path) -> None:
    """As under `ulimit -f 1` and on a full disk: the write fails in the middle; the limit is a process's."""
    resource = pytest.importorskip("resource")
    script = (
        "import sys, pathlib\nfrom stoker.data.cache import write_text\n"
        "try:\n    write_text(pathlib.Path(sys.argv[1]) / 'profile.json', 'x' * 5000)\n"
        "except OSError as error:\n    print(error.errno)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)),
    )
    assert done.stdout.strip() == str(errno.EFBIG), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_tokens_beside_the_cache_go_with_the_process(tmp_path: Path) -> None:
    script = (
        "from stoker.data.cache import open_or_build\n"
        "entry = open_or_build('tokens', 'k', lambda folder: {})\nprint(entry.folder, entry.folder.is_dir())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": "/dev/null", "TMPDIR": str(tmp_path)},
    )
    assert done.stdout.split()[1] == "True" and Path(done.stdout.split()[0]).parent == tmp_path, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_room_anywhere_is_said_with_what_to_do(job: Job) -> None:
    def build(folder: Path) -> dict[str, int]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(EnvironmentProblem, match="ST503"):
        open_or_build("tokens", "k", build)


def test_views_are_not_copies_and_read_only(job: Job) -> None:
    data = prepare_data(job, small_model())
    assert isinstance(data.train, EncodedSplit)
    view = data.train.token_ids(0)
    with pytest.raises((ValueError, TypeError)):
        view[0] = 7  # type: ignore[index]
    with pytest.raises(IndexError):
        data.train.token_ids(2)


def test_without_numpy_the_same_values(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with_numpy = prepare_data(job, small_model())
    monkeypatch.setattr("stoker.data.encoded._numpy", lambda: None)
    without = prepare_data(job, small_model())
    assert ids(without) == ids(with_numpy) and list(without.train.lengths) == list(with_numpy.train.lengths)
    assert isinstance(without.train, EncodedSplit)
    assert isinstance(without.train.token_ids(0), memoryview) and without.train.target(1) == 0


def test_many_samples_span_record_batches(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.data.encoded.CHUNK", 3)
    rows = [{"text": "good " * (i % 5 + 1), "label": str(i % 2)} for i in range(10)]
    write_rows(Path(job.base_dir) / "train.jsonl", rows)
    split = prepare_data(job, small_model()).train
    assert list(split.lengths) == [i % 5 + 3 for i in range(10)]
    assert [split.row_number(i) for i in range(10)] == list(range(1, 11))
    assert [split.target(i) for i in range(10)] == [i % 2 for i in range(10)]
    assert not list((cache_root() / "tokens").glob(".*"))
