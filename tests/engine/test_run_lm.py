"""Proves causal-LM tuning on a CPU, full and LoRA: it learns the answers, streams its metrics, continues prompts."""

import json
from pathlib import Path

import pytest
from tiny_jobs import plan_here, sums_job, write_sums

from stoker.engine.predict import predict
from stoker.engine.progress import Silent
from stoker.engine.run import run


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sums(tmp_path_factory.mktemp("sums"))


def test_full_tuning_learns_to_add_and_predict_answers(sums: Path) -> None:
    from transformers import AutoModelForCausalLM

    job = sums_job(sums, train={"epochs": 14.0, "lr": 3e-3}, run={"micro_batch_size": 16}, eval={"every": 50})
    out = sums / "full"
    record = run(plan_here(sums, job), out, progress=Silent())
    assert record.status == "finished" and record.end is not None
    assert record.end["metrics"]["perplexity"] < 3.0
    assert record.evals[0].metrics["perplexity"] == pytest.approx(
        2.718281828 ** record.evals[0].metrics["loss"], rel=1e-6
    )
    AutoModelForCausalLM.from_pretrained(out / "model", local_files_only=True)
    rows = sums / "ask.jsonl"
    rows.write_text(
        "\n".join(json.dumps({"question": f"{a} plus {b} is"}) for a, b in ((2, 3), (4, 4), (1, 0))) + "\n",
        encoding="utf-8",
    )
    answers = predict(out, rows, max_new_tokens=3)
    right = [answer.generated == digit for answer, digit in zip(answers, ("5", "8", "1"), strict=True)]
    assert sum(right) >= 2
    assert all(answer.perplexity is None for answer in answers)


def test_lora_with_the_chunked_loss_learns_and_predict_tells_perplexity(sums: Path) -> None:
    job = sums_job(
        sums,
        tune={"method": "lora", "rank": 8},
        train={"epochs": 6.0, "lr": 0.01},
        run={"micro_batch_size": 16, "loss": "chunked"},
    )
    out = sums / "lora"
    record = run(plan_here(sums, job), out, progress=Silent())
    assert record.status == "finished"
    assert record.evals[-1].metrics["loss"] < record.evals[0].metrics["loss"]
    assert (out / "model" / "adapter_model.safetensors").is_file()
    answers = predict(out, sums / "sums.jsonl", max_new_tokens=1)
    assert len(answers) == 200 and all(answer.perplexity and answer.perplexity > 1.0 for answer in answers)
