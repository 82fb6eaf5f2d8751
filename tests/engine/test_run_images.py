"""Proves image classification on a CPU: it learns scikit-learn's digits from files, exports, and predicts a folder."""

from pathlib import Path

import pytest
import torch
import transformers
from tiny_jobs import VIT, digits_job, plan_here, write_digits

from stoker.engine.positions import resampled
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


@pytest.mark.parametrize("method", ["full", "lora"])
def test_another_image_size_keeps_what_the_positions_learned(digits: Path, method: str) -> None:
    """A ViT of 16 x 16 pixels trained at 32 x 32: its grid of positions is resampled, as transformers resamples it."""
    base = digits / "base"
    network = transformers.ViTForImageClassification(transformers.ViTConfig(**{**VIT, "family": None}, num_labels=3))
    positions = network.vit.embeddings.position_embeddings
    torch.nn.init.normal_(positions)
    network.save_pretrained(base)
    tune = {"method": method, "rank": 2}
    job = digits_job(digits, model="base", train={"max_steps": 2, "image_size": 32, "lr": 1e-9}, tune=tune)
    out = digits / f"larger-{method}"
    assert run(plan_here(digits, job), out, progress=Silent()).status == "finished"
    assert len(predict(out, digits / "images" / "digit1")) > 0
    if method == "full":
        trained = transformers.AutoModelForImageClassification.from_pretrained(out / "model", local_files_only=True)
        assert trained.config.image_size == 32
        expected = network.vit.embeddings.interpolate_pos_encoding(torch.zeros(1, 65, 32), 32, 32)
        torch.testing.assert_close(trained.vit.embeddings.position_embeddings, expected, rtol=0, atol=1e-5)


def test_a_table_that_is_no_grid_is_left_alone() -> None:
    assert resampled(torch.zeros(1, 17, 8), torch.Size((1, 65, 8))) is not None
    for shape in ((1, 64, 8), (1, 65, 4), (65, 8)):
        assert resampled(torch.zeros(1, 17, 8), torch.Size(shape)) is None


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
