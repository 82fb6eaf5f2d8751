"""Metrics of one split, streamed: a language model keeps sums, a classifier keeps probabilities, neither logits."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stoker.core.job import Job
from stoker.engine.metrics import (
    DEFAULT_THRESHOLD,
    best_thresholds,
    multi_label_metrics,
    score_labels,
    single_label_metrics,
)
from stoker.engine.microbatch import MicroBatch
from stoker.engine.objective import MultiLabel, NextToken, SingleLabel, logits_of

LOWER_IS_BETTER = frozenset(("loss", "perplexity"))
_MIN_F1 = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """`metrics` by name; `thresholds` per label (multi_label); `absent`: labels without an example here.

    `labels`: label -> f1, support (rows that have it) and, multi_label, threshold.
    """

    metrics: dict[str, float]
    eval_s: float
    thresholds: tuple[float, ...] = ()
    absent: tuple[str, ...] = ()
    at_baseline: bool = False
    labels: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Evaluator:
    """Scores `model` under `context` (autocast of the run's precision), without gradients or dropout."""

    model: torch.nn.Module
    objective: SingleLabel | MultiLabel | NextToken
    labels: Sequence[str]
    device: torch.device
    context: Callable[[], Any]

    def __call__(
        self,
        batches: Iterable[MicroBatch],
        *,
        thresholds: Sequence[float] | None = None,
        phase: Callable[[int], None] = lambda done: None,
    ) -> Evaluation:
        """Metrics over `batches`. `thresholds`: those of the validation data; None: tune them here."""
        start = time.perf_counter()
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad(), self.context():
                if isinstance(self.objective, NextToken):
                    return self._language_model(batches, phase, start)
                return self._classifier(batches, thresholds, phase, start)
        finally:
            self.model.train(was_training)

    def _language_model(self, batches: Iterable[MicroBatch], phase: Callable[[int], None], start: float) -> Evaluation:
        """Token-weighted mean loss and its exponential."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        weight = 0.0
        for done, micro in enumerate(batches):
            total += self.objective.loss_sum(self.model, micro.to(self.device)).double()
            weight += micro.weight
            phase(done + 1)
        loss = float(total) / max(weight, 1.0)
        metrics = {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}
        return Evaluation(metrics=metrics, eval_s=time.perf_counter() - start)

    def _classifier(
        self,
        batches: Iterable[MicroBatch],
        thresholds: Sequence[float] | None,
        phase: Callable[[int], None],
        start: float,
    ) -> Evaluation:
        probabilities: list[torch.Tensor] = []
        targets: list[torch.Tensor] = []
        for done, micro in enumerate(batches):
            logits = logits_of(self.model, micro.to(self.device))
            probabilities.append(self.objective.probabilities(logits))  # type: ignore[union-attr]
            targets.append(micro.targets)
            phase(done + 1)
        scores = torch.cat(probabilities).cpu().numpy()
        truth = torch.cat(targets).numpy()
        loss = mean_log_loss(scores, truth)
        if isinstance(self.objective, SingleLabel):
            return self._single_label(scores, truth, loss, start)
        return self._multi_label(scores, truth > 0.5, loss, thresholds, start)

    def _single_label(
        self, scores: NDArray[np.float32], classes: NDArray[np.int64], loss: float, start: float
    ) -> Evaluation:
        metrics = {"loss": loss, **single_label_metrics(scores, classes)}
        present = set(classes.tolist())
        baseline = metrics["baseline_accuracy_commonest"]
        return Evaluation(
            metrics=metrics,
            eval_s=time.perf_counter() - start,
            absent=tuple(name for i, name in enumerate(self.labels) if i not in present),
            at_baseline=len(present) > 1 and len(set(scores.argmax(axis=1).tolist())) == 1 and baseline < 1.0,
            labels=self._each_label(one_hot(scores.argmax(axis=1), scores), one_hot(classes, scores), None),
        )

    def _multi_label(
        self,
        scores: NDArray[np.float32],
        truth: NDArray[np.bool_],
        loss: float,
        thresholds: Sequence[float] | None,
        start: float,
    ) -> Evaluation:
        limits = best_thresholds(scores, truth) if thresholds is None else np.asarray(thresholds, dtype=np.float64)
        metrics = {"loss": loss, **multi_label_metrics(scores, truth, limits)}
        present = np.asarray(truth.any(axis=0)).tolist()
        return Evaluation(
            metrics=metrics,
            eval_s=time.perf_counter() - start,
            thresholds=tuple(float(t) for t in limits),
            absent=tuple(name for name, here in zip(self.labels, present, strict=True) if not here),
            at_baseline=bool(truth.any())
            and metrics["f1_macro_at_half"] < _MIN_F1
            and metrics["f1_macro"] < metrics["baseline_f1_macro_all_positive"] + _chance_gain(truth),
            labels=self._each_label(scores >= limits, truth, limits),
        )

    def _each_label(
        self, predicted: NDArray[np.bool_], truth: NDArray[np.bool_], limits: NDArray[np.float64] | None
    ) -> dict[str, dict[str, float]]:
        f1, support = score_labels(predicted, truth).f1, truth.sum(axis=0)
        rows = {name: {"f1": float(f1[i]), "support": float(support[i])} for i, name in enumerate(self.labels)}
        if limits is not None:
            for name, limit in zip(self.labels, limits, strict=True):
                rows[name]["threshold"] = float(limit)
        return rows


def one_hot(classes: NDArray[np.int64], scores: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Classes [n] as [n, labels] of the shape of `scores`."""
    return np.eye(scores.shape[1], dtype=np.bool_)[classes]


def mean_log_loss(scores: NDArray[np.float32], truth: NDArray[Any]) -> float:
    """Unweighted cross-entropy of probabilities: over rows (classes) or rows x labels (0/1 truth)."""
    safe = np.clip(scores.astype(np.float64), 1e-12, 1.0 - 1e-12)
    if truth.ndim == 1:
        return float(-np.log(safe[np.arange(len(truth)), truth]).mean())
    return float(-(truth * np.log(safe) + (1.0 - truth) * np.log(1.0 - safe)).mean())


def is_better(metric: str, value: float, best: float | None) -> bool:
    """Whether `value` of `metric` beats `best`."""
    if best is None:
        return True
    return value < best if metric in LOWER_IS_BETTER else value > best


def default_thresholds(job: Job, num_labels: int) -> tuple[float, ...]:
    """0.5 for each label of a multi-label job, nothing otherwise."""
    return (DEFAULT_THRESHOLD,) * num_labels if job.problem == "multi_label" and job.task != "causal_lm" else ()


def _chance_gain(truth: NDArray[np.bool_]) -> float:
    """F1 that tuned thresholds gain over always-yes by chance: it shrinks with the root of a label's positives."""
    positives = truth.sum(axis=0)
    return _MIN_F1 + 0.5 / float(np.sqrt(positives[positives > 0].mean()))
