"""Predictions for image files, by the form and labels that the trained model's notes keep."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from stoker.core.job import DataSpec, Job
from stoker.data.prepare_images import prediction_images
from stoker.engine.image_source import ImageForm, read_image
from stoker.engine.predict import Prediction, decide, label_probabilities
from stoker.engine.trained import TrainedModel

_BATCH = 64


def predict_images(trained: TrainedModel, source: Path, phase: Callable[[int, int], None]) -> list[Prediction]:
    """Predictions for one image, a folder of images, or a table with a column of paths. Raises DataError."""
    stated = trained.notes["image"]
    form = ImageForm(
        size=stated["size"], channels=stated["channels"], mean=tuple(stated["mean"]), std=tuple(stated["std"])
    )
    column = trained.notes["columns"]["image"]
    job = Job(
        model="trained",
        task="image_classification",
        data=DataSpec(image=column, encoding=trained.notes["encoding"]),
    )
    split = prediction_images(job, source)
    results: list[Prediction] = []
    for start in range(0, len(split), _BATCH):
        paths = [split.path(i) for i in range(start, min(start + _BATCH, len(split)))]
        pixels = torch.from_numpy(np.stack([read_image(path, form) for path in paths]))
        with torch.inference_mode():
            probabilities = label_probabilities(trained, trained.logits({"pixel_values": pixels})).cpu()
        results += [decide(trained, path, values) for path, values in zip(paths, probabilities.tolist(), strict=True)]
        phase(len(results), len(split))
    return results
