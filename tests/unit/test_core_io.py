"""Job files end to end: each mistake is answered with its place, the nearest key, and what to do; exit code 2."""

import os
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from stoker.core.errors import JobFileError
from stoker.core.i18n import set_language
from stoker.core.io import job_to_yaml, read_job
from stoker.core.job import DataSpec, Job, NvmeSpec, ParallelSpec
from stoker.core.job_schema import json_schema

GOOD = """\
model: llama-3.1-8b
task: causal_lm
data:
  num_samples: 1000
  tokens_mean: 300
  tokens_p99: 900
  tokens_max: 2048
train:
  lr: 2e-5
  global_batch_size: 8
"""


def write(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    file = folder / "job.yaml"
    file.write_bytes(text.encode(encoding))
    return file


def refused(folder: Path, text: str, *overrides: str) -> JobFileError:
    with pytest.raises(JobFileError) as caught:
        read_job(write(folder, text), overrides)
    assert caught.value.exit_code == 2
    assert caught.value.fix
    return caught.value


def test_a_good_job_reads(tmp_path: Path) -> None:
    job = read_job(write(tmp_path, GOOD))
    assert job.train.lr == 2e-5
    assert job.train.epochs == 3.0
    assert job.base_dir == str(tmp_path)


def test_a_byte_order_mark_is_fine(tmp_path: Path) -> None:
    assert read_job(write(tmp_path, GOOD, "utf-8-sig")).task == "causal_lm"


def test_the_written_job_reads_back_the_same(tmp_path: Path) -> None:
    job = read_job(write(tmp_path, GOOD))
    again = read_job(write(tmp_path, job_to_yaml(job)))
    assert again == job


@pytest.mark.parametrize(
    ("line", "key", "nearest", "number"),
    [
        ("  globl_batch_size: 8", "globl_batch_size", "global_batch_size", 10),
        ("  epoch: 8", "epoch", "epochs", 10),
        ("  learning_rate: 8", "learning_rate", "", 10),
    ],
)
def test_an_unknown_key_names_line_and_nearest(tmp_path: Path, line: str, key: str, nearest: str, number: int) -> None:
    error = refused(tmp_path, GOOD.replace("  global_batch_size: 8", line))
    assert error.code == "ST010"
    assert key in error.problem
    assert f"job.yaml:{number} train.{key}" in error.place
    assert nearest in error.fix


def test_a_key_of_another_section_is_found_there(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD + "  spot: never\n")
    assert error.code == "ST010"
    assert "hardware.spot" in error.fix


def test_an_unknown_section_names_the_nearest(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD + "hardwear: {max_gpus: 4}\n")
    assert error.code == "ST010"
    assert "hardware" in error.fix


@pytest.mark.parametrize("missing", ["model", "task", "data"])
def test_a_missing_key_says_what_it_means(tmp_path: Path, missing: str) -> None:
    lines = [f"{k}: x" if k != "data" else "data: {num_samples: 1}" for k in ("model", "task", "data") if k != missing]
    error = refused(tmp_path, "\n".join(lines).replace("task: x", "task: causal_lm"))
    assert error.code == "ST011"
    assert missing in error.problem
    assert len(error.fix) > len(missing) + 8


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("train.epochs=many", "train.epochs"),
        ("train.epochs=-1", "train.epochs"),
        ("train.epochs=0", "train.epochs"),
        ("train.epochs=1e9", "train.epochs"),
        ("train.lr=0", "train.lr"),
        ("train.lr=.inf", "train.lr"),
        ("train.lr=.nan", "train.lr"),
        ("train.lr='2e-5'", "train.lr"),
        ("train.global_batch_size=8.5", "train.global_batch_size"),
        ("train.global_batch_size=true", "train.global_batch_size"),
        ("train.global_batch_size=99999999999", "train.global_batch_size"),
        ("train.seed=-1", "train.seed"),
        ("train.schedule=polynomial", "train.schedule"),
        ("data.num_samples=0", "data.num_samples"),
        ("data.num_samples=1e30", "data.num_samples"),
        ("data.eval_frac=1.0", "data.eval_frac"),
        ("tune.dropout=1", "tune.dropout"),
        ("tune.rank=0", "tune.rank"),
        ("task=summarise", "task"),
        ("hardware.gpus=L4", "hardware.gpus"),
        ("hardware.max_gpus=0", "hardware.max_gpus"),
        ("hardware.nodes=-3", "hardware.nodes"),
        ("goal.currency=EUR", "goal.currency"),
        ("goal.vat_frac=10", "goal.vat_frac"),
        ("goal.budget_usd=-5", "goal.budget_usd"),
        ("goal.budget_usd=1e12", "goal.budget_usd"),
        ("goal.deadline_hours=1e12", "goal.deadline_hours"),
        ("hardware.hbm_gb=1e308", "hardware.hbm_gb"),
        ("run.micro_batch_size=0", "run.micro_batch_size"),
        ("run.precision=fp4", "run.precision"),
        ("run.parallel={dp_shard: 0}", "run.parallel.dp_shard"),
        ("save.keep=0", "save.keep"),
        ("train=3", "train"),
        ("train=[]", "train"),
        ("model=5", "model"),
    ],
)
def test_wrong_types_and_absurd_numbers_are_named(tmp_path: Path, override: str, key: str) -> None:
    error = refused(tmp_path, GOOD, override)
    assert error.code == "ST012"
    assert override in error.place
    last = key.rsplit(".", 1)[-1]
    assert error.fix.startswith(f"{last}: ")
    assert len(error.fix) > len(last) + 4  # the key's own sentence


@pytest.mark.parametrize(
    ("override", "english", "korean"),
    [
        ("hardware=null", "null is not allowed here: it must be a mapping of keys", "null"),
        ("hardware.gpus=L4", "it must be a list: [a, b]", "목록"),
        ("train.lr=0", "it must be above 0", "0보다 커야"),
        ("train.epochs=1e9", "it must be at most 10,000", "10,000 이하"),
        ("train.seed=1.5", "it must be a whole number", "정수"),
        ("train.schedule=poly", "it must be 'linear', 'cosine' or 'constant'", "'linear'"),
        ("hardware.here=yes", "it must be true or false", "true 또는 false"),
    ],
)
def test_what_is_wrong_with_a_value_is_said_in_the_users_language(
    tmp_path: Path, override: str, english: str, korean: str
) -> None:
    """No word of the validator's own, neither pydantic's English nor Python's None."""
    assert english in refused(tmp_path, GOOD, override).problem
    set_language("ko")
    problem = refused(tmp_path, GOOD, override).problem
    assert korean in problem and "must" not in problem and "None" not in problem


def test_every_number_of_a_job_has_both_bounds() -> None:
    """1e308 is a float and 10**30 an int: a key without a limit takes them into the arithmetic of a plan."""
    open_ended = []
    sections = [f.default for f in fields(Job) if is_dataclass(f.default)]
    for section in (DataSpec, NvmeSpec, ParallelSpec, *map(type, sections)):
        hints = get_type_hints(section)
        for item in fields(section):
            members = {hints[item.name], *get_args(hints[item.name])}
            is_number = bool(members & {int, float})
            if is_number and not ({"gt", "ge"} & set(item.metadata) and {"lt", "le"} & set(item.metadata)):
                open_ended.append(f"{section.__name__}.{item.name}")
    assert not open_ended


def test_a_wrong_value_in_the_file_names_its_line(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD.replace("lr: 2e-5", "lr: fast"))
    assert "job.yaml:9 train.lr" in error.place
    assert "'fast'" in error.problem


def test_overrides_win_and_may_open_a_section(tmp_path: Path) -> None:
    job = read_job(
        write(tmp_path, GOOD),
        ["train.lr=3e-5", "hardware.gpus=[L4, H200]", "run.micro_batch_size=2", "tune={method: lora, rank: 8}"],
    )
    assert job.train.lr == 3e-5
    assert job.train.global_batch_size == 8
    assert job.hardware.gpus == ["L4", "H200"]
    assert job.run.micro_batch_size == 2
    assert job.tune.rank == 8


def test_an_empty_override_restores_nothing(tmp_path: Path) -> None:
    assert read_job(write(tmp_path, GOOD), ["train.max_steps="]).train.max_steps is None


@pytest.mark.parametrize("text", ["train.lr", "=3", "", "..=3"])
def test_a_malformed_override_is_explained(tmp_path: Path, text: str) -> None:
    assert refused(tmp_path, GOOD, text).code == "ST007"


def test_an_override_of_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD, "train.epoch=3")
    assert error.code == "ST010"
    assert error.place.startswith("--set")
    assert "epochs" in error.fix


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "none.yaml", "no such file"), (tmp_path, "folder")):
        with pytest.raises(JobFileError, match=words) as caught:
            read_job(path)
        assert caught.value.code == "ST005"


def test_what_is_there_and_no_file_is_not_called_missing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in ((tmp_path / "pipe", "pipe or device"), (Path("/dev/null"), "pipe or device")):
        with pytest.raises(JobFileError, match=words):
            read_job(path)
    with pytest.raises(JobFileError, match="ST005"):
        read_job("a\0b")


def test_a_data_file_given_as_job_is_not_read_to_its_end(tmp_path: Path) -> None:
    """A sparse terabyte, which no memory holds."""
    with (tmp_path / "huge.csv").open("wb") as stream:
        stream.truncate(10**12)
    with pytest.raises(JobFileError, match="larger than 2 MB"):
        read_job(tmp_path / "huge.csv")


@pytest.mark.parametrize("encoding", ["cp949", "utf-16"])
def test_a_wrong_encoding_names_the_line(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(JobFileError) as caught:
        read_job(write(tmp_path, "model: x\ntask: causal_lm\n# 한글\n", encoding))
    assert caught.value.code == "ST006"
    if encoding == "cp949":
        assert caught.value.place.endswith(":3")


def test_empty_and_shapeless_files(tmp_path: Path) -> None:
    assert refused(tmp_path, "").code == "ST002"
    assert refused(tmp_path, "---\n").code == "ST002"
    assert refused(tmp_path, "null").code == "ST002"
    assert refused(tmp_path, "- a\n- b\n").code == "ST004"
    assert refused(tmp_path, "just words").code == "ST004"


def test_the_published_schema_knows_every_key() -> None:
    schema = json_schema()
    assert set(schema["required"]) == {"model", "task", "data"}
    assert schema["additionalProperties"] is False
    assert "base_dir" not in schema["properties"]
    train = schema["properties"]["train"]["properties"]
    assert train["lr"]["description"]
    assert Job.__doc__
