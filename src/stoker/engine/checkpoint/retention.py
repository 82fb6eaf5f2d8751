"""Which checkpoints stay: the last, the best, and as many of the newest as `keep` says (case 12)."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.core.i18n import _
from stoker.engine.checkpoint.layout import new_attempt, step_folders, step_name
from stoker.engine.checkpoint.manifest import verify_folder
from stoker.engine.checkpoint.storage import LocalStorage, Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """`kept` and `deleted` steps, ascending. `problem`: why nothing was deleted although there was enough to keep."""

    kept: tuple[int, ...]
    deleted: tuple[int, ...]
    problem: str = ""


def steps_to_keep(steps: Sequence[int], keep: int, best_step: int | None) -> frozenset[int]:
    """The last and the best, filled up with the newest others to `keep`; so one more than `keep` at keep 1."""
    newest = sorted(steps, reverse=True)
    chosen = {step for step in (*newest[:1], best_step) if step in steps and step is not None}
    for step in newest:
        if len(chosen) >= keep:
            break
        chosen.add(step)
    return frozenset(chosen)


def prune(run_dir: Path | str, keep: int, best_step: int | None, *, storage: Storage | None = None) -> Pruned:
    """Delete the checkpoints that `steps_to_keep` leaves out, once the newest was read back from the disk whole.

    Where the newest does not read back, or deleting fails, the rest stays and `problem` says why. Never raises.
    """
    storage = storage or LocalStorage()
    folders = dict(step_folders(run_dir))
    chosen = steps_to_keep(list(folders), keep, best_step)
    doomed = sorted(set(folders) - chosen)
    if not doomed:
        return Pruned(kept=tuple(sorted(folders)), deleted=())
    newest = max(folders)
    try:
        verify_folder(folders[newest], step=newest)
    except (ValueError, OSError) as error:
        return Pruned(
            kept=tuple(sorted(folders)),
            deleted=(),
            problem=_("the checkpoint of step {step} does not read back ({error}): older ones are kept").format(
                step=newest, error=error
            ),
        )
    deleted = []
    problem = ""
    for step in doomed:
        gone = folders[step].parent / f".gone-{step_name(step)}-{new_attempt()}"
        try:
            storage.rename(folders[step], gone)  # so that a kill while deleting leaves nothing that looks complete
            deleted.append(step)
            storage.remove_tree(gone)
        except OSError as error:
            problem = _("the checkpoint of step {step} could not be deleted: {error}").format(step=step, error=error)
    with contextlib.suppress(OSError):
        storage.fsync_dir(folders[newest].parent)
    return Pruned(kept=tuple(sorted(set(folders) - set(deleted))), deleted=tuple(deleted), problem=problem)
