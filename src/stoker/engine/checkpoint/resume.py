"""Finding the newest checkpoint that is whole, and loading it. What is not whole is set aside with the reason, never
deleted: someone may still rescue weights from it by hand.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.engine.checkpoint.layout import (
    checkpoints_dir,
    hidden_folders,
    new_attempt,
    step_folders,
    step_name,
)
from stoker.engine.checkpoint.manifest import Manifest, verify_folder
from stoker.engine.checkpoint.state_io import from_plain
from stoker.engine.checkpoint.storage import LocalStorage, Storage
from stoker.engine.checkpoint.tensor_file import map_tensors, read_tensors


class Rejected(NamedTuple):
    """A folder that is no checkpoint to resume from, where it lies now, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """A checkpoint whose every byte was compared with its manifest."""

    step: int
    path: Path
    manifest: Manifest
    meta: dict[str, Any]

    @property
    def files(self) -> tuple[str, ...]:
        """Names that `load` takes, as they were given to `save_checkpoint`."""
        return tuple(name.removesuffix(".safetensors") for name in self.manifest.files)

    def load(self, file: str) -> dict[str, torch.Tensor]:
        """Tensors of one file on the CPU, hashed again as they are read. Raises RunError ST452."""
        name = f"{file}.safetensors"
        entry = self.manifest.files.get(name)
        try:
            if entry is None:
                raise ValueError(_("the manifest does not list it"))
            return read_tensors(self.path / name, entry.num_bytes, entry.digest)
        except (ValueError, OSError) as error:
            raise _damaged(self.path / name, error) from error

    def map(self, file: str) -> dict[str, torch.Tensor]:
        """`load` without a buffer of the file's size: pages of the file, whose bytes were compared when it was found.

        Raises RunError ST452.
        """
        name = f"{file}.safetensors"
        entry = self.manifest.files.get(name)
        try:
            if entry is None:
                raise ValueError(_("the manifest does not list it"))
            return map_tensors(self.path / name, entry.num_bytes)
        except (ValueError, OSError) as error:
            raise _damaged(self.path / name, error) from error


class ResumeScan(NamedTuple):
    """`newest`: where to go on, None for a fresh start. `rejected`: what was passed over, newest first."""

    newest: ResumePoint | None
    rejected: tuple[Rejected, ...]


def find_resume(
    run_dir: Path | str,
    *,
    run_id: str | None = None,
    set_aside: bool = True,
    storage: Storage | None = None,
) -> ResumeScan:
    """The newest valid checkpoint of `run_dir`, and every newer folder that is not one, with the reason.

    Reads the newest one whole. With `run_id`, one of another run is not valid. `set_aside` renames the invalid to
    `.bad-...` (the caller holds the run's lock); without it nothing on the disk changes.
    """
    storage = storage or LocalStorage()
    rejected = [
        Rejected(path, _("the save was cut short before it was complete"))
        for _step, path in reversed(hidden_folders(run_dir, "tmp"))
    ]
    for step, path in _candidates(run_dir):
        try:
            manifest = verify_folder(path, step=step, run_id=run_id)
            meta = from_plain(manifest.meta)
            if not isinstance(meta, dict):
                raise ValueError(_("its manifest holds no state"))
        except (ValueError, OSError) as error:
            place = _set_aside(path, step, storage) if set_aside else path
            rejected.append(Rejected(place, str(error)))
            continue
        if set_aside and path.name != step_name(step):
            path = _restore(path, step, storage)
        return ResumeScan(ResumePoint(step=step, path=path, manifest=manifest, meta=meta), tuple(rejected))
    return ResumeScan(None, tuple(rejected))


def open_checkpoint(run_dir: Path | str, step: int) -> ResumePoint:
    """The checkpoint of one `step` (the best one, say), every byte compared. Raises RunError ST452."""
    path = checkpoints_dir(run_dir) / step_name(step)
    try:
        manifest = verify_folder(path, step=step)
        return ResumePoint(step=step, path=path, manifest=manifest, meta=dict(from_plain(manifest.meta)))
    except (ValueError, TypeError, OSError) as error:
        raise _damaged(path, error) from error


def list_steps(run_dir: Path | str) -> tuple[int, ...]:
    """Steps that have a complete checkpoint's folder, ascending; their content is not looked at."""
    return tuple(sorted(step for step, _path in step_folders(run_dir)))


def _candidates(run_dir: Path | str) -> list[tuple[int, Path]]:
    """Newest step first; of one step the complete folder before one that a swap left under its old name."""
    former = [(step, path) for step, path in hidden_folders(run_dir, "old")]
    return sorted([*step_folders(run_dir), *former], key=lambda item: (-item[0], item[1].name.startswith(".")))


def _set_aside(path: Path, step: int, storage: Storage) -> Path:
    place = path.parent / f".bad-{step_name(step)}-{new_attempt()}"
    try:
        storage.rename(path, place)
        storage.fsync_dir(path.parent)
    except OSError:
        return path  # a read-only folder: said by the reason, and left where it is
    return place


def _restore(path: Path, step: int, storage: Storage) -> Path:
    place = path.parent / step_name(step)
    try:
        storage.rename(path, place)
        storage.fsync_dir(path.parent)
    except OSError:
        return path
    return place


def _damaged(path: Path, error: Exception) -> RunError:
    return RunError(
        "ST452",
        _("the checkpoint cannot be used: {error}").format(error=error),
        place=str(path),
        fix=_("`stoker run` again resumes from the newest one that is whole"),
    )
