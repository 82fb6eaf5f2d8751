"""Whether the run folder's mount has room for checkpoints, in bytes, decided before the first byte is written."""

from collections.abc import Mapping
from pathlib import Path

import torch

from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.engine.checkpoint.layout import step_folders
from stoker.engine.checkpoint.storage import FreeSpace, LocalStorage, Storage
from stoker.engine.checkpoint.tensor_file import lay_out

_MANIFEST_ROOM_BYTES = 1 << 20


def checkpoint_bytes(files: Mapping[str, Mapping[str, torch.Tensor]]) -> int:
    """Exact bytes of the tensor files that `save_checkpoint` would write for `files`."""
    return sum(lay_out(tensors).num_bytes for tensors in files.values())


def require_space_for_run(
    run_dir: Path | str, bytes_per_checkpoint: int, keep: int, storage: Storage | None = None, *, model_bytes: int = 0
) -> None:
    """Before step 1: room for `keep` checkpoints and the one being written (case 14), less what already lies there,
    and for the model that is exported at the end.

    The last and the best always stay, so at least two are counted. Raises RunError ST450 naming the mount.
    """
    copies = max(keep, 2) + 1
    held = min(len(step_folders(run_dir)), copies - 1)
    space = (storage or LocalStorage()).free_space(Path(run_dir))
    needed = (copies - held) * (bytes_per_checkpoint + _MANIFEST_ROOM_BYTES) + model_bytes
    if needed > space.free_bytes:
        raise _no_room(
            run_dir,
            space,
            _("{copies} checkpoints of {each} and the model of {model} need {needed}, {mount} has {free} free").format(
                copies=copies - held,
                each=_gb(bytes_per_checkpoint),
                model=_gb(model_bytes),
                needed=_gb(needed),
                mount=space.mount,
                free=_gb(space.free_bytes),
            ),
        )


def require_space_for_save(run_dir: Path | str, sizes: list[int], storage: Storage) -> None:
    """Before one save: room for files of exactly `sizes` bytes, in whole blocks. Raises RunError ST450, OSError."""
    space = storage.free_space(Path(run_dir))
    block = space.block_bytes
    needed = sum(-(-size // block) * block for size in sizes) + 4 * block
    if needed > space.free_bytes:
        raise _no_room(
            run_dir,
            space,
            _("this checkpoint needs {needed}, {mount} has {free} free").format(
                needed=_gb(needed), mount=space.mount, free=_gb(space.free_bytes)
            ),
        )
    if space.inodes is not None and space.inodes < len(sizes) + 2:
        raise _no_room(
            run_dir,
            space,
            _("this checkpoint needs {count} files, {mount} has room for {free}").format(
                count=len(sizes) + 2, mount=space.mount, free=space.inodes
            ),
        )


def _no_room(run_dir: Path | str, space: FreeSpace, problem: str) -> RunError:
    return RunError(
        "ST450",
        problem,
        place=str(run_dir),
        fix=_("free space on {mount}, choose --out on another disk, or lower save.keep").format(mount=space.mount),
    )


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:.2f} MB"
