"""Saving a checkpoint so that a kill or a power cut at any byte leaves the previous one or the new one, whole.

The order (docs/architecture.md, "commit protocol"): space is decided; every file of this attempt's own folder is
written and fsynced; the manifest last, fsynced; the folder fsynced; renamed; the parent fsynced. After any error the
stump is thrown away, a file whose fsync failed included: the kernel may have dropped its pages already.
"""

import contextlib
import datetime
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stoker import __version__
from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.engine.checkpoint.digest import DigestPool, FileDigest
from stoker.engine.checkpoint.layout import (
    checkpoints_dir,
    hidden_folders,
    new_attempt,
    step_folders,
    step_name,
)
from stoker.engine.checkpoint.manifest import FILE_NAME, MANIFEST_NAME, FileEntry, Manifest, manifest_bytes
from stoker.engine.checkpoint.space import require_space_for_save
from stoker.engine.checkpoint.state_io import to_plain
from stoker.engine.checkpoint.storage import LocalStorage, Storage, write_all
from stoker.engine.checkpoint.tensor_file import AnyTensor, TensorFile, lay_out, stream_out


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """A checkpoint on the disk. `removed_stumps`: names of earlier, killed saves whose leftovers were cleared."""

    step: int
    path: Path
    num_bytes: int
    save_s: float
    removed_stumps: tuple[str, ...] = ()


def save_checkpoint(
    run_dir: Path | str,
    step: int,
    files: Mapping[str, Mapping[str, AnyTensor]],
    meta: Mapping[str, Any],
    *,
    run_id: str = "",
    storage: Storage | None = None,
    before_commit: Callable[[], None] | None = None,
) -> SavedCheckpoint:
    """Write `files` (name -> tensors; each becomes name.safetensors) and `meta` as the checkpoint of `step`.

    `meta` is anything that JSON with exact floats can hold (see state_io). `before_commit` runs just before the
    rename and may raise, to fence a writer that lost its lock. Raises RunError ST450 (no space, nothing written),
    ST451 (write error: the stump is removed, earlier checkpoints are untouched), ST458 (not storable).
    """
    storage = storage or LocalStorage()
    started = time.monotonic()
    layouts = _lay_out_all(files)
    manifest_room = len(manifest_bytes(_manifest(step, run_id, "", layouts, {}, _plain_meta(meta))))
    try:
        parent = _prepare_parent(Path(run_dir), storage)
        stumps = clear_stumps(run_dir, storage)
        sizes = [layout.num_bytes for layout in layouts.values()]
        require_space_for_save(run_dir, [*sizes, manifest_room], storage)
        attempt = new_attempt()
        temporary = parent / f".tmp-{step_name(step)}-{attempt}"
        try:
            storage.make_dir(temporary)
            entries = _write_files(temporary, files, layouts, storage)
            manifest = _manifest(step, run_id, attempt, layouts, entries, _plain_meta(meta))
            _write_bytes(temporary / MANIFEST_NAME, manifest_bytes(manifest), storage)
            storage.fsync_dir(temporary)
            if before_commit:
                before_commit()
            _move_into_place(temporary, parent, step, attempt, storage)
        except BaseException:
            with contextlib.suppress(OSError):
                storage.remove_tree(temporary)
            raise
    except OSError as error:
        raise _write_problem(run_dir, step, error) from error
    return SavedCheckpoint(
        step=step,
        path=parent / step_name(step),
        num_bytes=sum(sizes),
        save_s=time.monotonic() - started,
        removed_stumps=stumps,
    )


def clear_stumps(run_dir: Path | str, storage: Storage) -> tuple[str, ...]:
    """Remove what killed saves and killed deletions left; returns their names. The caller holds the run's lock."""
    complete = {step for step, _path in step_folders(run_dir)}
    doomed = [path for kind in ("tmp", "gone") for _step, path in hidden_folders(run_dir, kind)]
    doomed += [path for step, path in hidden_folders(run_dir, "old") if step in complete]
    for path in doomed:
        with contextlib.suppress(FileNotFoundError):
            storage.remove_tree(path)
    return tuple(path.name for path in doomed)


def _lay_out_all(files: Mapping[str, Mapping[str, AnyTensor]]) -> dict[str, TensorFile]:
    layouts = {}
    for name, tensors in files.items():
        if not FILE_NAME.fullmatch(f"{name}.safetensors"):
            raise ValueError(f"{name!r} is not a file name")
        try:
            layouts[f"{name}.safetensors"] = lay_out(tensors)
        except ValueError as error:
            raise _not_storable(error) from error
    return layouts


def _plain_meta(meta: Mapping[str, Any]) -> Any:
    try:
        return to_plain(dict(meta))
    except TypeError as error:
        raise _not_storable(error) from error


def _not_storable(error: Exception) -> RunError:
    return RunError(
        "ST458",
        _("the training state cannot be stored: {error}").format(error=error),
        fix=_("this is a technique's state that stoker does not know: please report it"),
    )


def _manifest(
    step: int, run_id: str, attempt: str, layouts: Mapping[str, TensorFile], entries: Mapping[str, FileEntry], meta: Any
) -> Manifest:
    blank = {name: FileEntry(num_bytes=layout.num_bytes, digest="0" * 64) for name, layout in layouts.items()}
    return Manifest(
        step=step,
        run_id=run_id,
        attempt=attempt,
        saved_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        versions={
            "stoker": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        files=entries or blank,
        meta=meta,
    )


def _prepare_parent(run_dir: Path, storage: Storage) -> Path:
    """The checkpoints folder, its name and those of its new parents on the disk."""
    missing = [path for path in (checkpoints_dir(run_dir), *checkpoints_dir(run_dir).parents) if not path.exists()]
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            storage.make_dir(path)
        storage.fsync_dir(path.parent)
    return checkpoints_dir(run_dir)


def _write_files(
    folder: Path,
    files: Mapping[str, Mapping[str, AnyTensor]],
    layouts: Mapping[str, TensorFile],
    storage: Storage,
) -> dict[str, FileEntry]:
    entries = {}
    with DigestPool(sum(layout.num_bytes for layout in layouts.values())) as pool:
        for name, tensors in files.items():
            layout = layouts[f"{name}.safetensors"]
            digest = FileDigest(pool)
            with _new_file(folder / f"{name}.safetensors", storage) as descriptor:
                for view in stream_out(layout, tensors):
                    digest.update(view)
                    write_all(storage, descriptor, view)
            entries[f"{name}.safetensors"] = FileEntry(num_bytes=layout.num_bytes, digest=digest.hexdigest())
    return entries


def _write_bytes(path: Path, content: bytes, storage: Storage) -> None:
    with _new_file(path, storage) as descriptor:
        write_all(storage, descriptor, memoryview(content))


@contextlib.contextmanager
def _new_file(path: Path, storage: Storage) -> Any:
    descriptor = storage.create(path)
    try:
        yield descriptor
        storage.fsync(descriptor)
    finally:
        storage.close(descriptor)


def _move_into_place(temporary: Path, parent: Path, step: int, attempt: str, storage: Storage) -> None:
    target = parent / step_name(step)
    former = parent / f".old-{step_name(step)}-{attempt}"
    swapped = target.exists()
    if swapped:  # the same step again, after a resume: find_resume knows the folder's name in between
        storage.rename(target, former)
    try:
        storage.rename(temporary, target)
    except OSError:
        if swapped:
            storage.rename(former, target)
        raise
    storage.fsync_dir(parent)
    if swapped:
        with contextlib.suppress(OSError):
            storage.remove_tree(former)  # else the next save clears it


def _write_problem(run_dir: Path | str, step: int, error: OSError) -> RunError:
    return RunError(
        "ST451",
        _("the checkpoint of step {step} could not be written: {error}").format(
            step=step, error=error.strerror or error
        ),
        place=str(checkpoints_dir(run_dir)),
        fix=_("earlier checkpoints are untouched: mend or free the disk, then the same command resumes from the last"),
    )
