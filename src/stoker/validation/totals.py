"""Seconds of a whole training that steps explain: samples and epochs known, evaluations counted where they are said.

Trainings whose data or batch a table leaves open are not scored, with that reason.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

from stoker.catalogue.text_lengths import find_text_lengths
from stoker.core.measurement import Measurement
from stoker.validation.notes import read_lengths
from stoker.validation.wording import Gap

_THOUSANDS: Final = re.compile(r"(\d[\d,.]*)\s*(k?)\s*(?:samples|features|examples|images)", re.IGNORECASE)
_EPOCHS: Final = re.compile(r"epochs?\s*=\s*(\d+(?:\.\d+)?)|(\d+(?:\.\d+)?)\s*epochs?\b", re.IGNORECASE)
_STEPS: Final = re.compile(r"(\d[\d,]*)\s*(?:optimizer )?steps\b", re.IGNORECASE)
_EVALUATED_FRAC: Final = 0.04  # of a fine-tuning set held out, looked at about ten times: a tenth of a third of a step
_EVALUATIONS: Final = 9.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Optimizer steps of the training, and evaluated samples over all of it."""

    steps: float
    evaluated_samples: float = 0.0


def read_training(measurement: Measurement, samples_per_step: int) -> Training:
    """Steps of the training that a note describes. Raises Gap where it does not say how much was trained."""
    counted = _STEPS.search(measurement.note)
    if counted:
        return Training(steps=float(counted[1].replace(",", "")))
    samples, epochs = _samples(measurement.note), _EPOCHS.search(measurement.note)
    if samples is None or epochs is None:
        raise Gap("seconds_total: samples and epochs are not stated, so steps do not explain it")
    if "dataset" in measurement.note.casefold() and not _lengths_are_known(measurement):
        raise Gap("seconds_total: the lengths of its data set are not stated")
    passes = float(epochs[1] or epochs[2])
    evaluates = "validation" in measurement.note.casefold() or "eval" in measurement.note.casefold()
    held_out = _EVALUATED_FRAC * samples if evaluates else 0.0
    return Training(
        steps=ceil((samples - held_out) * passes / samples_per_step), evaluated_samples=_EVALUATIONS * held_out
    )


def _lengths_are_known(measurement: Measurement) -> bool:
    return read_lengths(measurement) is not None or find_text_lengths(measurement.note) is not None


def _samples(note: str) -> float | None:
    found = _THOUSANDS.search(note)
    if not found:
        return None
    return float(found[1].replace(",", "").rstrip(".")) * (1000.0 if found[2] else 1.0)


def total_terms(training: Training, step_s: float, forward_s: float, micro_batch: float) -> Mapping[str, float]:
    """Seconds of steps and of evaluations. `forward_s`: of one micro-batch of `micro_batch` samples."""
    return {
        "steps": training.steps * step_s,
        "evaluation": training.evaluated_samples / max(micro_batch, 1.0) * forward_s,
    }
