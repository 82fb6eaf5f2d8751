"""Classification metrics from probabilities [n, labels] (float32) and truth; exact formulas, numpy only.

Macro averages leave out labels without a positive example, and name them, instead of counting a silent zero
(case 61). Checked against scikit-learn in tests/engine/test_metrics.py.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

_LRAP_ROWS = 4096  # rows at once: rows x labels x labels booleans
DEFAULT_THRESHOLD = 0.5
_LEAST_GAIN = 0.05  # of the way from always-yes to perfect


@dataclass(frozen=True, slots=True)
class LabelScores:
    """F1 of each label, and which labels had a positive example."""

    f1: NDArray[np.float64]
    present: Bools
    true_positive: int
    wrong: int  # false positives and false negatives together

    @property
    def macro(self) -> float:
        """Mean F1 over the labels that occur."""
        return float(self.f1[self.present].mean()) if self.present.any() else 0.0

    @property
    def micro(self) -> float:
        """F1 of all decisions together."""
        total = 2 * self.true_positive + self.wrong
        return 2 * self.true_positive / total if total else 0.0


def score_labels(predicted: Bools, truth: Bools) -> LabelScores:
    """F1 a label, from predictions and truth [n, labels]: 2 TP / (2 TP + FP + FN), 0 where nothing is there."""
    hits = (predicted & truth).sum(axis=0)
    wrong = (predicted ^ truth).sum(axis=0)
    whole = 2 * hits + wrong
    f1 = np.where(whole > 0, 2 * hits / np.maximum(whole, 1), 0.0)
    return LabelScores(f1, np.asarray(truth.any(axis=0)), int(hits.sum()), int(wrong.sum()))


def ranking_average_precision(probabilities: Floats, truth: Bools) -> float:
    """LRAP: over true labels, the share of true labels among those ranked at least as high; rows then averaged.

    Rows without any true label, or with all, count 1, as in scikit-learn.
    """
    total = 0.0
    for start in range(0, len(truth), _LRAP_ROWS):
        scores, true = probabilities[start : start + _LRAP_ROWS], truth[start : start + _LRAP_ROWS]
        at_least = scores[:, None, :] >= scores[:, :, None]  # [row, label, other]
        rank = at_least.sum(axis=2)
        true_rank = (at_least & true[:, None, :]).sum(axis=2)
        counts = true.sum(axis=1)
        share = np.where(true, true_rank / rank, 0.0).sum(axis=1)
        trivial = (counts == 0) | (counts == true.shape[1])
        total += float(np.where(trivial, 1.0, share / np.maximum(counts, 1)).sum())
    return total / max(1, len(truth))


def best_thresholds(probabilities: Floats, truth: Bools) -> NDArray[np.float64]:
    """Threshold of each label that maximises its F1 on this data.

    0.5 where the label does not occur, or where the best F1 is hardly above that of always saying yes: then nothing
    was learned about it, and a threshold near 0 would only flood the predictions.

    A label is predicted when its probability is at least the threshold. The threshold lies half-way between the
    two neighbouring probabilities, so it does not hang on one row's last digit; of equal ones the nearest to 0.5.
    """
    thresholds = np.full(truth.shape[1], DEFAULT_THRESHOLD)
    for label in np.flatnonzero(truth.any(axis=0)):
        order = np.argsort(-probabilities[:, label], kind="stable")
        scores = probabilities[order, label].astype(np.float64)
        hits = np.cumsum(truth[order, label])
        chosen = np.arange(1, len(order) + 1)
        f1 = 2.0 * hits / (chosen + hits[-1])
        cuts = (scores + np.append(scores[1:], 0.0)) / 2.0
        usable = np.append(scores[:-1] > scores[1:], True)  # a cut cannot pass between equal probabilities
        f1 = np.where(usable, f1, -1.0)
        always = 2.0 * hits[-1] / (len(order) + hits[-1])
        if f1.max() < always + _LEAST_GAIN * (1.0 - always):
            continue
        best = np.flatnonzero(f1 >= f1.max() - 1e-12)
        thresholds[label] = cuts[best[np.argmin(np.abs(cuts[best] - DEFAULT_THRESHOLD))]]
    return thresholds


def multi_label_metrics(probabilities: Floats, truth: Bools, thresholds: NDArray[np.float64]) -> dict[str, float]:
    """Metrics at `thresholds` and at 0.5, with what always-yes and always-no reach beside them."""
    tuned = score_labels(probabilities >= thresholds, truth)
    half = score_labels(probabilities >= DEFAULT_THRESHOLD, truth)
    always = score_labels(np.ones_like(truth), truth)
    exact = (probabilities >= thresholds) == truth
    return {
        "f1_macro": tuned.macro,
        "f1_micro": tuned.micro,
        "f1_macro_at_half": half.macro,
        "f1_micro_at_half": half.micro,
        "lrap": ranking_average_precision(probabilities, truth),
        "accuracy": float(exact.all(axis=1).mean()),
        "baseline_f1_macro_all_positive": always.macro,
        "baseline_f1_micro_all_positive": always.micro,
        "baseline_f1_micro_all_negative": 0.0,
    }


def single_label_metrics(probabilities: Floats, classes: NDArray[np.int64]) -> dict[str, float]:
    """Accuracy, F1 and LRAP of one class a row; the share of the commonest class is the baseline."""
    num_labels = probabilities.shape[1]
    truth = np.eye(num_labels, dtype=np.bool_)[classes]
    predicted = np.eye(num_labels, dtype=np.bool_)[probabilities.argmax(axis=1)]
    scores = score_labels(predicted, truth)
    return {
        "accuracy": scores.micro,  # one decision a row: micro F1 is accuracy
        "f1_macro": scores.macro,
        "f1_micro": scores.micro,
        "lrap": ranking_average_precision(probabilities, truth),
        "baseline_accuracy_commonest": float(truth.mean(axis=0).max()) if len(truth) else 0.0,
    }
