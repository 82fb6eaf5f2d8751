"""Impossible combinations: each is refused with ST013 and a way out, and the sound neighbour of each passes."""

from pathlib import Path

import pytest
import yaml

from stoker.core.errors import JobFileError
from stoker.core.io import read_job
from stoker.core.job_checks import save_minutes

TEXT = {
    "model": "klue-bert",
    "task": "text_classification",
    "data": {"train": "a.csv", "text": "text", "labels": "label"},
}
MULTI = {**TEXT, "problem": "multi_label", "data": {"train": "a.csv", "text": "text", "labels": ["a", "b"]}}
CAUSAL = {"model": "llama", "task": "causal_lm", "data": {"train": "a.jsonl", "text": "text"}}
IMAGE = {"model": "vit", "task": "image_classification", "data": {"train": "images"}}


def read(folder: Path, job: dict, *overrides: str):  # type: ignore[no-untyped-def, type-arg]
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(job), encoding="utf-8")
    return read_job(file, overrides)


@pytest.mark.parametrize("job", [TEXT, MULTI, CAUSAL, IMAGE])
def test_the_plain_jobs_pass(tmp_path: Path, job: dict) -> None:  # type: ignore[type-arg]
    assert read(tmp_path, job).task == job["task"]


@pytest.mark.parametrize(
    ("job", "wrong", "right", "where"),
    [
        (CAUSAL, "problem=multi_label", "problem=single_label", "problem"),
        (CAUSAL, "hardware.providers=[]", "hardware.providers=[aws]", "hardware.providers"),
        (CAUSAL, "hardware.regions=[]", "hardware.regions=any", "hardware.regions"),
        (CAUSAL, "tune.freeze=['']", "tune.freeze=[layers]", "tune.freeze"),
        (CAUSAL, "tune.targets=[q_proj, ' ']", "tune.targets=[q_proj]", "tune.targets"),
        (CAUSAL, "hardware={nodes: 9}", "hardware={nodes: 8}", "hardware"),  # max_gpus is 8 by default
        (CAUSAL, "eval.metric=f1_macro", "eval.metric=perplexity", "eval.metric"),
        (TEXT, "eval.metric=perplexity", "eval.metric=lrap", "eval.metric"),
        (IMAGE, "tune.pooling=last", "tune.pooling=auto", "tune.pooling"),
        (IMAGE, "data.text=body", "data.text=", "data.text"),
        (IMAGE, "train.seq_len=64", "train.image_size=64", "train.seq_len"),
        (CAUSAL, "data.text_pair=other", "data.text_pair=", "data.text_pair"),
        (TEXT, "data.template='{text}'", "data.text_pair=other", "data.template"),
        (TEXT, "data.loss_on=all", "data.loss_on=response", "data.loss_on"),
        (TEXT, "data.image=path", "data.image=", "data.image"),
        (TEXT, "train.image_size=224", "train.seq_len=224", "train.image_size"),
        (CAUSAL, "train.head_lr=0.1", "train.lr=0.1", "train.head_lr"),
        (TEXT, "run.loss=chunked", "run.loss=eager", "run.loss"),
        (CAUSAL, "run.workers=4", "run.workers=0", "run.workers"),
        (TEXT, "tune={merge: true}", "tune={merge: true, method: lora}", "tune"),
        (CAUSAL, "train.class_weights=balanced", "train.class_weights=none", "train.class_weights"),
        (CAUSAL, "data.labels=label", "data.labels=", "data.labels"),
        (TEXT, "data.labels=", "data.labels=other", "data"),
        (MULTI, "data.labels=[a, a]", "data.labels=[a, c]", "data.labels"),
        (TEXT, "data.labels=[a, b]", "data.labels=a", "data.labels"),
        (MULTI, "data.labels=a", "data.labels=[a]", "data"),
        (TEXT, "data.label_names=[a]", "data.label_names=[a, b]", "data.label_names"),
        (TEXT, "data.label_names=[a, a]", "data.label_names=[a, b]", "data.label_names"),
        (TEXT, "data.text=", "data.text=body", "data"),
        (TEXT, "data.text={prompt: p, response: r}", "data.text=body", "data.text"),
        (CAUSAL, "data.text={prompt: p}", "data.text={prompt: p, response: r}", "data.text"),
        (CAUSAL, "data.text={prompt: p, response: r, messages: m}", "data.text={messages: m}", "data.text"),
        (CAUSAL, "data.text={}", "data.text={messages: m}", "data.text"),
        (CAUSAL, "data={text: text}", "data={num_samples: 9, tokens_mean: 5}", "data"),
        (CAUSAL, "data={num_samples: 9}", "data={num_samples: 9, tokens_mean: 5}", "data"),
        (
            CAUSAL,
            "data={num_samples: 9, tokens_mean: 50, tokens_p99: 20}",
            "data={num_samples: 9, tokens_mean: 50, tokens_p99: 90, tokens_max: 90}",
            "data",
        ),
        (  # case 8: one of 8,192 among 1,000 of 128 has its mean above the percentile; 210 would need two in a hundred
            CAUSAL,
            "data={num_samples: 1001, tokens_mean: 210, tokens_p99: 128, tokens_max: 8192}",
            "data={num_samples: 1001, tokens_mean: 136, tokens_p99: 128, tokens_max: 8192}",
            "data",
        ),
        (
            TEXT,
            "data={train: a.csv, text: t, labels: l, eval: b.csv, split: s}",
            "data={train: a.csv, text: t, labels: l, split: s}",
            "data",
        ),
        (TEXT, "train.early_stop=2", "train.early_stop=", "train.early_stop"),
        (TEXT, "hardware={here: true, gpus: [L4]}", "hardware={here: true}", "hardware"),
        (TEXT, "hardware={here: true, nodes: 2}", "hardware={nodes: 2}", "hardware"),
        (TEXT, "hardware={num_gpus: 16}", "hardware={num_gpus: 16, max_gpus: 16}", "hardware"),
        (TEXT, "hardware={num_gpus: 3, nodes: 2}", "hardware={num_gpus: 4, nodes: 2}", "hardware"),
        (TEXT, "hardware={gpus: []}", "hardware={gpus: [L4]}", "hardware"),
        (TEXT, "run.micro_batch_size=5", "run.micro_batch_size=8", "train.global_batch_size"),
        (TEXT, "run.parallel={dp_shard: 3}", "run.parallel={dp_shard: 4}", "train.global_batch_size"),
        (TEXT, "save.every=often", "save.every=10m", "save.every"),
        (TEXT, "save.every=1e308h", "save.every=2h", "save.every"),
    ],
)
def test_each_impossible_combination(tmp_path: Path, job: dict, wrong: str, right: str, where: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(JobFileError) as caught:
        read(tmp_path, job, wrong)
    error = caught.value
    assert error.code == "ST013", error
    assert error.fix
    assert where in error.place
    read(tmp_path, job, right)


def test_degrees_must_multiply_to_the_number_of_gpus(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="multiply to 4"):
        read(tmp_path, TEXT, "hardware.num_gpus=8", "run.parallel={dp_shard: 4}")
    read(tmp_path, TEXT, "hardware.num_gpus=8", "run.parallel={dp_shard: 4, dp_replicate: 2}")


def test_the_batch_message_proposes_a_size_that_works(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="not divisible") as caught:
        read(tmp_path, TEXT, "train.global_batch_size=50", "run.micro_batch_size=8")
    assert "48" in caught.value.fix
    read(tmp_path, TEXT, "train.global_batch_size=48", "run.micro_batch_size=8")


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("10m", 10.0), ("2h", 120.0), ("30s", 0.5), ("1.5H", 90.0), ("m", None), ("-5m", None), ("10", None), ("", None)],
)
def test_save_minutes(text: str, minutes: float | None) -> None:
    assert save_minutes(text) == minutes


def test_test_data_needs_no_validation_data(tmp_path: Path) -> None:
    assert read(tmp_path, TEXT, "data.test=c.csv").data.test == "c.csv"


def test_auto_metric_follows_the_task(tmp_path: Path) -> None:
    assert [read(tmp_path, job).metric for job in (TEXT, MULTI, CAUSAL)] == ["accuracy", "f1_macro", "loss"]
