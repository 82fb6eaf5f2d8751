"""Proves that the same picture gives the same pixels whatever depth and mode its file has: 8 and 16 bits, palette,
alpha; and that floating-point pixels, whose range nothing states, are refused."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stoker.core.errors import DataError
from stoker.engine.image_source import ImageForm, read_image

FORM = ImageForm(size=16, channels=3, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
GREYS = np.arange(256, dtype=np.uint8).reshape(16, 16)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "LA", "I;16", "I;16B"])
def test_depth_and_mode_do_not_change_the_picture(mode: str, tmp_path: Path) -> None:
    wide = GREYS.astype(np.uint16) * 257
    grey = Image.fromarray(GREYS)
    if mode == "I;16B":
        image, file = Image.fromarray(wide.astype(">u2")), tmp_path / "image.tiff"
    else:
        image = Image.fromarray(wide) if mode == "I;16" else grey.convert(mode)
        file = tmp_path / "image.png"
    image.save(file)
    pixels = read_image(str(file), FORM)
    assert pixels.shape == (3, 16, 16)
    assert np.abs(pixels - GREYS.astype(np.float32) / 255.0).max() < 1e-6


def test_floating_point_pixels_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)).save(tmp_path / "image.tiff")
    with pytest.raises(DataError, match=r"ST160.*floating-point"):
        read_image(str(tmp_path / "image.tiff"), FORM)
