"""Proves the metrics against scikit-learn, and case 61: thresholds, baselines, absent labels."""

import numpy as np
import pytest
from sklearn import metrics as sk

from stoker.engine.metrics import (
    best_thresholds,
    multi_label_metrics,
    ranking_average_precision,
    score_labels,
    single_label_metrics,
)


def random_case(seed: int, rows: int = 300, labels: int = 6) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    truth = generator.random((rows, labels)) < generator.uniform(0.05, 0.5, labels)
    scores = np.round(generator.random((rows, labels)) * 0.6 + truth * 0.3, 2).astype(np.float32)  # ties on purpose
    return scores, truth


@pytest.mark.parametrize("seed", range(5))
def test_f1_and_lrap_equal_scikit_learn(seed: int) -> None:
    scores, truth = random_case(seed)
    predicted = scores >= 0.5
    ours = score_labels(predicted, truth)
    assert ours.micro == pytest.approx(sk.f1_score(truth, predicted, average="micro"))
    assert ours.macro == pytest.approx(sk.f1_score(truth, predicted, average="macro", zero_division=0))
    lrap = sk.label_ranking_average_precision_score(truth, scores)
    assert ranking_average_precision(scores, truth) == pytest.approx(lrap)


def test_single_label_equals_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    scores = generator.dirichlet(np.ones(4), 200).astype(np.float32)
    classes = generator.integers(0, 4, 200)
    ours = single_label_metrics(scores, classes)
    assert ours["accuracy"] == pytest.approx(sk.accuracy_score(classes, scores.argmax(1)))
    assert ours["f1_macro"] == pytest.approx(sk.f1_score(classes, scores.argmax(1), average="macro"))


def test_thresholds_are_the_best_there_are() -> None:
    scores, truth = random_case(7)
    thresholds = best_thresholds(scores, truth)
    for label in range(truth.shape[1]):
        best = max(
            sk.f1_score(truth[:, label], scores[:, label] >= cut, zero_division=0) for cut in np.linspace(0, 1, 401)
        )
        ours = sk.f1_score(truth[:, label], scores[:, label] >= thresholds[label], zero_division=0)
        assert ours == pytest.approx(best)


def test_always_yes_on_a_tenth_of_positives_is_shown_as_the_baseline() -> None:
    truth = np.zeros((100, 2), dtype=bool)
    truth[:10] = True
    shown = multi_label_metrics(np.full((100, 2), 0.3, np.float32), truth, np.array([0.5, 0.5]))
    assert shown["baseline_f1_micro_all_positive"] == pytest.approx(0.182, abs=5e-4)
    assert shown["f1_micro_at_half"] == 0.0


def test_a_label_without_examples_is_left_out_of_macro_and_keeps_one_half() -> None:
    scores, truth = random_case(3)
    truth[:, 2] = False
    kept = [0, 1, 3, 4, 5]
    ours = score_labels(scores >= 0.5, truth)
    assert ours.macro == pytest.approx(
        sk.f1_score(truth[:, kept], scores[:, kept] >= 0.5, average="macro", zero_division=0)
    )
    assert best_thresholds(scores, truth)[2] == 0.5


def test_a_label_that_nothing_was_learned_about_keeps_one_half() -> None:
    """Its best F1 would be that of always-yes, which helps nobody who reads the predictions."""
    generator = np.random.default_rng(1)
    truth = generator.random((2000, 1)) < 0.05
    scores = generator.random((2000, 1)).astype(np.float32)
    assert best_thresholds(scores, truth)[0] == 0.5
