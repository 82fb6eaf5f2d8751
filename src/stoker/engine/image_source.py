"""Image files as normalised tensors [B, C, S, S]: decoded and resized by threads, mean and deviation as the model's.

Every image is resized to the square that the network takes (bilinear, no crop), scaled to 0..1 and normalised by the
model folder's preprocessor_config.json, or by 0.5 and 0.5 where it has none.
"""

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.plan import ResolvedModel
from stoker.data.image_files import undecodable
from stoker.data.images import ImageSplit
from stoker.engine.microbatch import MicroBatch
from stoker.engine.objective import Objective

_DEFAULT_EDGE = 224
_BILINEAR = 2  # PIL's constant, which preprocessor_config.json uses too


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageForm:
    """What the network takes: edge in pixels, channels (1 or 3), mean and deviation a channel."""

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def preprocessor_config(self) -> dict[str, Any]:
        """The same as transformers' AutoImageProcessor reads it."""
        return {
            "image_processor_type": "ViTImageProcessor",
            "do_resize": True,
            "do_rescale": True,
            "do_normalize": True,
            "rescale_factor": 1 / 255,
            "resample": _BILINEAR,
            "size": {"height": self.size, "width": self.size},
            "image_mean": list(self.mean),
            "image_std": list(self.std),
        }


def image_form(job: Job, resolved: ResolvedModel) -> ImageForm:
    """The form of the job's model: train.image_size, else what its files say."""
    config = resolved.config
    file = Path(resolved.folder) / "preprocessor_config.json" if resolved.folder else None
    stated: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file and file.is_file() else {}
    channels = int(config.get("num_channels") or 3)
    mean = stated.get("image_mean") or [0.5] * channels
    std = stated.get("image_std") or [0.5] * channels
    edge = job.train.image_size or _edge(config.get("image_size")) or _edge(stated.get("size")) or _DEFAULT_EDGE
    return ImageForm(size=edge, channels=channels, mean=tuple(map(float, mean)), std=tuple(map(float, std)))


def _edge(value: Any) -> int | None:
    if isinstance(value, Mapping):
        value = value.get("height") or value.get("shortest_edge")
    if isinstance(value, (list, tuple)) and value:
        value = value[0]
    return int(value) if isinstance(value, (int, float)) and value else None


def read_image(path: str, form: ImageForm) -> NDArray[np.float32]:
    """One file as [C, S, S]. Raises DataError ST160 where it does not decode."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            image.draft("RGB", (form.size, form.size))  # jpeg decodes at an eighth where that is enough
            plain = _eight_bits(image).convert("RGB" if form.channels == 3 else "L")
            square = plain.resize((form.size, form.size), Image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise undecodable(Path(path), str(error)[:120]) from error
    pixels = np.asarray(square, dtype=np.float32).reshape(form.size, form.size, form.channels) / 255.0
    mean, std = np.asarray(form.mean, dtype=np.float32), np.asarray(form.std, dtype=np.float32)
    normalised: NDArray[np.float32] = ((pixels - mean) / std).transpose(2, 0, 1).astype(np.float32)
    return normalised


def _eight_bits(image: Any) -> Any:
    """Pillow clips wider greys at 255, which turns a 16-bit image white: scaled to 8 bits instead.

    Raises ValueError for floating-point pixels, whose range no file states.
    """
    from PIL import Image

    if image.mode == "F":
        raise ValueError(_("floating-point pixels have no stated range: save the image with 8 or 16 bits"))
    if not image.mode.startswith("I"):
        return image
    wide = np.asarray(image).astype(np.float32) / 257.0
    return Image.fromarray(np.clip(np.rint(wide), 0, 255).astype(np.uint8))


class ImageSource:
    """An `ImageSplit` that collates. `workers`: decoding threads, 0 for as many as there are cores (at most 16)."""

    def __init__(self, split: ImageSplit, job: Job, objective: Objective, form: ImageForm, *, workers: int) -> None:
        self.split, self.form = split, form
        self.lengths: Sequence[int] = [1] * split.num_samples
        self._objective = objective
        self._target_dtype = np.float32 if job.problem == "multi_label" else np.int64
        count = workers or min(16, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix="stoker-decode")

    def __len__(self) -> int:
        return self.split.num_samples

    def collate(self, samples: Sequence[int]) -> MicroBatch:
        """Pixels [B, C, S, S] and targets. Raises DataError ST160 naming a file that does not decode."""
        paths = [self.split.path(i) for i in samples]
        pixels = np.stack(list(self._pool.map(lambda path: read_image(path, self.form), paths)))
        targets = torch.from_numpy(np.asarray([self.split.target(i) for i in samples], dtype=self._target_dtype))
        return MicroBatch(
            inputs={"pixel_values": torch.from_numpy(pixels)},
            targets=targets,
            samples=len(samples),
            tokens=len(samples),
            padded_tokens=len(samples),
            weight=self._objective.weight(targets),
        )
