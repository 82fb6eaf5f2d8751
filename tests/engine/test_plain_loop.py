"""Proves that a run's losses are those of an independent, plain PyTorch loop: one sample at a time without padding, the
sum of the losses over the units of the whole step, clipping and AdamW of torch, the order of the seed rule. All tasks;
two epochs with accumulation and a short last step; equal within 1e-5 (case 16)."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_jobs import ELECTRA, digits_job, plan_here, sentiment_job, sums_job, write_digits, write_sentiment, write_sums
from torch.nn import functional

from stoker.data.images import ImageSplit
from stoker.data.prepare import prepare_data
from stoker.engine.build import build_model
from stoker.engine.ordering import epoch_order
from stoker.engine.progress import Silent
from stoker.engine.run import run

_DRY = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
_TRAIN = {"epochs": 2.0, "global_batch_size": 12, "lr": 3e-3, "warmup_frac": 0.25, "max_grad_norm": 0.5}
_EPS = 1e-5


def _text(folder: Path, **sections: Any) -> dict[str, Any]:
    model = dict(ELECTRA, initializer_range=0.1, **_DRY)
    return sentiment_job(write_sentiment(folder, rows=60), model=model, **sections)


_JOBS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "multi_label": _text,
    "single_label": lambda folder: _text(folder, problem="single_label", data={"labels": "label"}),
    "causal_lm": lambda folder: sums_job(write_sums(folder, rows=60)),
    "images": lambda folder: digits_job(write_digits(folder, count=60)),
}


@pytest.mark.parametrize("name", list(_JOBS))
def test_losses_are_those_of_a_plain_loop(name: str, tmp_path: Path) -> None:
    job = _JOBS[name](tmp_path)
    job["train"], job["run"] = {**job["train"], **_TRAIN}, {"micro_batch_size": 4, "precision": "fp32"}
    plan = plan_here(tmp_path, job)
    record = run(plan, tmp_path / "out", progress=Silent())
    expected = _plain_losses(plan)
    assert len(record.steps) == len(expected) and record.status == "finished"
    assert [line.loss for line in record.steps] == pytest.approx([loss for loss, _lr in expected], abs=_EPS)
    assert [line.lr for line in record.steps] == pytest.approx([lr for _loss, lr in expected], rel=1e-9)
    assert max(abs(a - b) for (a, _), (b, _) in itertools.pairwise(expected)) > 100 * _EPS


def _plain_losses(plan: Any) -> list[tuple[float, float]]:
    """(loss, learning rate) of each step."""
    job, data = plan.job, prepare_data(plan.job, plan.model)
    labels = data.labels.names if data.labels else ()
    model: Any = build_model(job, plan.model, plan.picked.run_config, labels).model.train()
    learning = list(model.parameters())
    groups = [
        {"params": [p for p in learning if p.ndim > 1], "weight_decay": job.train.weight_decay},
        {"params": [p for p in learning if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=job.train.lr)
    size, rows = job.train.global_batch_size, len(data.train)
    per_epoch = -(-rows // size)
    total = int(per_epoch * job.train.epochs)
    warmup = math.ceil(job.train.warmup_frac * total)
    losses = []
    for step in range(total):
        epoch, index = divmod(step, per_epoch)
        samples = epoch_order(job.train.seed, epoch, rows)[index * size : (index + 1) * size]
        summed, units = zip(*(_one_sample(model, job, data.train, i) for i in samples), strict=True)
        loss = torch.stack(summed).sum() / sum(units)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(learning, job.train.max_grad_norm)
        lr = job.train.lr * ((step + 1) / (warmup + 1) if step < warmup else (total - step) / (total - warmup))
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        optimizer.zero_grad()
        losses.append((loss.item(), lr))
    return losses


def _one_sample(model: Any, job: Any, split: Any, i: int) -> tuple[torch.Tensor, int]:
    """(summed loss, units of loss) of one sample, without padding."""
    if isinstance(split, ImageSplit):
        logits = model(pixel_values=_pixels(split.path(i))).logits
        return functional.cross_entropy(logits, torch.tensor([split.target(i)])), 1
    ids = torch.tensor([list(split.token_ids(i))], dtype=torch.int64)
    if job.task == "causal_lm":
        counted = torch.tensor(list(split.loss_mask(i)))[1:].bool()
        logits = model(input_ids=ids).logits[0, :-1]
        return functional.cross_entropy(logits[counted], ids[0, 1:][counted], reduction="sum"), int(counted.sum())
    logits = model(input_ids=ids).logits
    target = torch.tensor([split.target(i)])
    if job.problem == "multi_label":
        summed = functional.binary_cross_entropy_with_logits(logits, target.float(), reduction="sum")
        return summed, target.numel()
    return functional.cross_entropy(logits, target), 1


def _pixels(path: str) -> torch.Tensor:
    from PIL import Image

    with Image.open(path) as image:
        square = np.asarray(image.convert("RGB"), dtype=np.float32) / 255.0
    return torch.from_numpy((square - 0.5) / 0.5).permute(2, 0, 1)[None]
