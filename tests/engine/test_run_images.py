"""Proves image classification on a CPU: it learns scikit-learn's digits from files, exports, and predicts a folder."""

from pathlib import Path

import pytest
from tiny_jobs import digits_job, plan_here, write_digits

from stoker.engine.predict import predict
from stoker.engine.progress import Silent
from stoker.engine.run import run


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"))


def test_digits_are_learned_and_predicted(digits: Path) -> None:
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    out = digits / "run"
    record = run(plan_here(digits, digits_job(digits)), out, progress=Silent())
    assert record.status == "finished" and record.end is not None
    assert record.end["metrics"]["accuracy"] > 0.85
    model = AutoModelForImageClassification.from_pretrained(out / "model", local_files_only=True)
    assert model.config.id2label == {0: "digit0", 1: "digit1", 2: "digit2"}
    processor = AutoImageProcessor.from_pretrained(out / "model", local_files_only=True, backend="pil")
    assert processor.size["height"] == 16
    answers = predict(out, digits / "images" / "digit1")
    right = sum(answer.labels == ("digit1",) for answer in answers)
    assert right / len(answers) > 0.8


def test_convolutions_keep_their_batch_statistics_over_a_resume(digits: Path) -> None:
    from safetensors.torch import load_file

    from stoker.engine.checkpoint import list_steps

    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    model = {"family": "resnet", "layer_type": "basic", **sizes}
    out = digits / "resnet"
    record = run(plan_here(digits, digits_job(digits, model=model, train={"epochs": 1.0, "image_size": 32})), out,
                 progress=Silent())  # fmt: skip
    assert record.status == "finished"
    saved = load_file(str(out / "checkpoints" / f"step-{max(list_steps(out)):08d}" / "model.safetensors"))
    assert any(name.endswith("running_mean") for name in saved)
