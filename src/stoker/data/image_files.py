"""Image files: found in class folders, and decoded to their end once, so that none fails in hour four.

Where Pillow is missing only the first bytes are looked at. Decoding for training is the engine's.
"""

import hashlib
import io
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.data.files import IMAGE_SUFFIXES, file_identity, real_path, regular_file

CHECK_ALL_UP_TO = 20_000
_SAMPLED = 2_000
_IN_MEMORY = re.compile(r" <[^<>]* at 0x[0-9a-f]+>")  # what Pillow calls bytes that have no file name
_MAX_PIXELS = 100_000_000
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"RIFF", b"BM", b"II*\x00", b"MM\x00*")


def class_folders(folder: Path) -> list[Path]:
    """Sub-folders of an image folder, one a class, sorted by name. Raises DataError ST161 when there is none."""
    real_path(folder)
    found = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not found:
        raise DataError(
            "ST161",
            _("the folder has no sub-folder"),
            place=str(folder),
            fix=_("put the images of each class into a folder of its name, or give a table and data.image"),
        )
    return found


def images_in(folder: Path) -> list[Path]:
    """Image files under a class folder, sorted; links to folders are not followed."""
    found: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders.sort()
        found.extend(Path(root) / name for name in sorted(names) if name.lower().endswith(IMAGE_SUFFIXES))
    return found


def folder_identity(folder: Path) -> str:
    """What changes when images are added, removed or renamed, without opening any."""
    parts = [file_identity(folder)]
    if folder.is_dir():
        parts.extend(file_identity(child) for child in sorted(folder.iterdir()) if child.is_dir())
    return "\n".join(parts)


def check_images(paths: Sequence[Path], *, everything: bool = False) -> dict[str, str]:
    """Content hash of each image that was decoded: all up to 20,000, else 2,000 spread evenly.

    Raises DataError ST160 naming the first file that does not decode.
    """
    chosen: Sequence[Path] = paths
    if len(paths) > CHECK_ALL_UP_TO and not everything:
        step = len(paths) / _SAMPLED
        chosen = [paths[int(i * step)] for i in range(_SAMPLED)]
    image_module = pillow()
    limit = None if image_module is None else image_module.MAX_IMAGE_PIXELS
    try:
        if image_module is not None:
            image_module.MAX_IMAGE_PIXELS = None  # its warning is not ours: sizes are checked below
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            digests = list(pool.map(lambda path: _digest_of_sound(path, image_module), chosen))
    finally:
        if image_module is not None:
            image_module.MAX_IMAGE_PIXELS = limit
    return {str(path): digest for path, digest in zip(chosen, digests, strict=True)}


def pillow() -> Any:
    """PIL.Image, or None where Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        return None
    return Image


def _digest_of_sound(path: Path, image_module: Any) -> str:
    raw = regular_file(path).read_bytes()
    if not raw.startswith(_MAGIC):
        raise undecodable(path, _("empty") if not raw else _("not an image"))
    if image_module is not None:
        try:
            with image_module.open(io.BytesIO(raw)) as image:
                if image.size[0] * image.size[1] > _MAX_PIXELS:
                    raise undecodable(path, _("more than {count} pixels").format(count=_MAX_PIXELS))
                image.draft("RGB", (64, 64))  # jpeg: a small decode still reads every byte
                image.load()
        except DataError:
            raise
        except Exception as error:  # Pillow's plugins raise anything
            raise undecodable(path, str(error)[:120] or type(error).__name__) from error
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


def undecodable(path: Path, why: str) -> DataError:
    """The error for an image that cannot be decoded."""
    return DataError(
        "ST160",
        _("the image does not decode: {why}").format(why=_IN_MEMORY.sub("", why)),
        place=str(path),
        fix=_("replace or remove this file; `stoker check` looks at all of them"),
    )
