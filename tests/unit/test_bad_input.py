"""Bad input through the command, without torch: exit 2, one message with its code and place, what to do, no traceback.

Each row is a job that works, with one thing wrong. What only shows while training stands in tests/engine/test_bad_runs.
"""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from data_samples import write_wordpiece

from stoker.cli.main import main

MODEL: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}
ROWS = "".join(f"good film {'day ' * i},yes\nbad film {'day ' * i},no\n" for i in range(10))
SHARD = json.dumps({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
SHARD = struct.pack("<Q", len(SHARD)) + SHARD + bytes(16)


def csv(folder: Path, rows: str | bytes, header: str = "text,label\n") -> None:
    raw = rows if isinstance(rows, bytes) else rows.encode()
    (folder / "train.csv").write_bytes(header.encode() + raw)


def model_folder(folder: Path, job: dict[str, Any], **files: bytes) -> None:
    """A model folder whose weights are `files` (dots written as __), and the job that names it."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    for name, raw in files.items():
        (folder / "model" / name.replace("__", ".")).write_bytes(raw)
    job["model"] = "model"


def empty_file(folder: Path, job: dict[str, Any]) -> None:
    (folder / "train.csv").write_bytes(b"")


def wrong_encoding(folder: Path, job: dict[str, Any]) -> None:
    csv(folder, ROWS.encode() + b"caf\xe9\xff\xff,yes\n")


def missing_column(folder: Path, job: dict[str, Any]) -> None:
    job["data"]["text"] = "txet"


def label_not_in_the_list(folder: Path, job: dict[str, Any]) -> None:
    csv(folder, ROWS + "good day,unsure\n")
    job["data"]["label_names"] = ["yes", "no"]


def all_rows_one_class(folder: Path, job: dict[str, Any]) -> None:
    csv(folder, ROWS.replace(",no", ",yes"))


def a_label_that_only_validation_has(folder: Path, job: dict[str, Any]) -> None:
    (folder / "valid.csv").write_text("text,label\ngood day,never\n", encoding="utf-8")
    del job["data"]["eval_frac"]
    job["data"]["eval"] = "valid.csv"


def zero_rows_after_filtering(folder: Path, job: dict[str, Any]) -> None:
    csv(folder, " ,yes\n,no\n")


def one_text_for_all_rows(folder: Path, job: dict[str, Any]) -> None:
    csv(folder, "good film,yes\ngood film,no\n" * 8)


def longer_than_the_positions(folder: Path, job: dict[str, Any]) -> None:
    job["train"]["seq_len"] = 100


def vocabulary_larger_than_the_embedding(folder: Path, job: dict[str, Any]) -> None:
    job["model"]["vocab_size"] = 10


def missing_shard(folder: Path, job: dict[str, Any]) -> None:
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    index = {"weight_map": dict(zip("ab", names, strict=True))}
    files = {names[0].replace(".", "__"): SHARD, "model__safetensors__index__json": json.dumps(index).encode()}
    model_folder(folder, job, **files)


def truncated_shard(folder: Path, job: dict[str, Any]) -> None:
    model_folder(folder, job, model__safetensors=SHARD[:-3])


def pickle_weights(folder: Path, job: dict[str, Any]) -> None:
    model_folder(folder, job, pytorch_model__bin=b"\x80\x04cos\nsystem\n.")


def broken_image(folder: Path, job: dict[str, Any]) -> None:
    for name in ("cats", "dogs"):
        (folder / "images" / name).mkdir(parents=True)
    (folder / "images" / "dogs" / "7.png").write_bytes(b"\x89PNG\r\n\x1a\nand no more")
    job.update(task="image_classification", data={"train": "images"}, train={})
    job["model"] = {"family": "vit", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    del job["tokenizer"]


def batch_not_divisible(folder: Path, job: dict[str, Any]) -> None:
    job["train"]["global_batch_size"] = 10
    job["run"] = {"micro_batch_size": 4}


def h100_is_three(folder: Path, job: dict[str, Any]) -> None:
    job["hardware"] = {"gpus": ["H100"]}


def negative_rate(folder: Path, job: dict[str, Any]) -> None:
    job["train"]["lr"] = -1


def absurd_epochs(folder: Path, job: dict[str, Any]) -> None:
    job["train"]["epochs"] = 1e9


def not_a_number(folder: Path, job: dict[str, Any]) -> None:
    job["train"]["lr"] = float("nan")


def unknown_key(folder: Path, job: dict[str, Any]) -> None:
    job["train"]["epoch"] = 3


CASES: list[tuple[str, Callable[[Path, dict[str, Any]], None], str, tuple[str, ...], str]] = [
    ("check", empty_file, "ST104", ("train.csv",), "check how it was written"),
    ("check", wrong_encoding, "ST105", ("train.csv:22", "byte"), "UTF-8"),
    ("check", missing_column, "ST110", ("train.csv", "txet"), "did you mean text?"),
    ("check", label_not_in_the_list, "ST121", ("train.csv:22", "unsure"), "yes, no"),
    ("check", all_rows_one_class, "ST122", ("train.csv label", "yes"), "label column"),
    ("check", a_label_that_only_validation_has, "ST125", ("valid.csv:2", "never"), "data.label_names"),
    ("check", zero_rows_after_filtering, "ST130", ("train.csv", "empty_text 2"), "columns"),
    ("check", one_text_for_all_rows, "ST133", ("train.csv data.eval_frac", "1 distinct"), "data.eval"),
    ("plan", longer_than_the_positions, "ST144", ("train.seq_len", "64 positions"), "train.seq_len: 64"),
    ("check", longer_than_the_positions, "ST144", ("train.seq_len", "64 positions"), "train.seq_len: 64"),
    ("plan", vocabulary_larger_than_the_embedding, "ST143", ("tok", "10 rows"), "belongs to the model"),
    ("check", vocabulary_larger_than_the_embedding, "ST143", ("tok", "10 rows"), "belongs to the model"),
    ("plan", missing_shard, "ST207", ("model-00002-of-00002.safetensors", "missing"), "fetch"),
    ("check", truncated_shard, "ST207", ("model.safetensors",), "fetch"),
    ("plan", pickle_weights, "ST208", ("pytorch_model.bin",), "save_pretrained"),
    ("check", broken_image, "ST160", ("7.png", "does not decode"), "replace"),
    ("plan", batch_not_divisible, "ST013", ("job.yaml:", "not divisible"), "use 8"),
    ("plan", h100_is_three, "ST301", ("H100-SXM5-80GB", "H100-PCIe-80GB", "H100-NVL-94GB"), "write the one you mean"),
    ("plan", negative_rate, "ST012", ("job.yaml:", "above 0"), "peak learning rate"),
    ("plan", absurd_epochs, "ST012", ("job.yaml:", "10000"), "passes over the training data"),
    ("plan", not_a_number, "ST012", ("job.yaml:",), "peak learning rate"),
    ("plan", unknown_key, "ST010", ("job.yaml:", "epoch"), "epochs"),
]


@pytest.mark.parametrize(
    ("command", "spoil", "code", "said", "remedy"), CASES, ids=[f"{case[0]}-{case[1].__name__}" for case in CASES]
)
def test_bad_input_exits_2_with_place_and_remedy(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    spoil: Callable[[Path, dict[str, Any]], None],
    code: str,
    said: tuple[str, ...],
    remedy: str,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    answer, _out, error = outcome(tmp_path, command, lambda folder, job: None, capsys)
    assert answer == 0, error  # the job works before it is spoilt
    answer, _out, error = outcome(tmp_path, command, spoil, capsys)
    assert answer == 2 and f"error [{code}]" in error and "Traceback" not in error and " at 0x" not in error
    first, fix = error.split("\n  -> ")[0], error.split("\n  -> ")[1]
    assert all(part in first for part in said), first
    assert remedy in fix, fix


def test_a_label_absent_from_validation_is_named_but_no_reason_to_refuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 61: it is listed and left out of the mean, so the run may go on."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def spoil(folder: Path, job: dict[str, Any]) -> None:
        (folder / "valid.csv").write_text("text,label\ngood day,yes\n", encoding="utf-8")
        del job["data"]["eval_frac"]
        job["data"]["eval"] = "valid.csv"

    answer, said, _error = outcome(tmp_path, "check", spoil, capsys)
    assert answer == 0 and "[ST123]" in said and "no sample of eval has the label no:" in said


def outcome(
    folder: Path,
    command: str,
    spoil: Callable[[Path, dict[str, Any]], None],
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of the command over a small job that `spoil` has changed."""
    write_wordpiece(folder / "tok")
    csv(folder, ROWS)
    job: dict[str, Any] = {
        "model": dict(MODEL),
        "tokenizer": "tok",
        "task": "text_classification",
        "data": {"train": "train.csv", "text": "text", "labels": "label", "eval_frac": 0.2},
        "train": {"epochs": 1, "global_batch_size": 8},
        "hardware": {"gpus": ["L4"], "num_gpus": 1},
    }
    spoil(folder, job)
    file = folder / "job.yaml"
    # JSON is YAML, but for NaN, which YAML writes with a dot
    file.write_text(json.dumps(job, indent=1).replace("NaN", ".nan"), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main([command, str(file)])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err
