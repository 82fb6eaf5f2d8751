"""Where checkpoints lie in a run folder, and what their folder names say.

checkpoints/step-00000200/            complete: renamed into place after its manifest was on the disk
checkpoints/.tmp-step-00000200-ATTEMPT/   a save in progress, or the stump of one that was killed
checkpoints/.old-step-00000200-ATTEMPT/   the former one of a step that is saved again, for the moment of the swap
checkpoints/.gone-step-00000200-ATTEMPT/  being deleted after a newer one was read back
checkpoints/.bad-step-00000200-ATTEMPT/   found damaged and set aside; never deleted by stoker
"""

import os
import re
import secrets
from pathlib import Path

_STEP = re.compile(r"step-(\d{8,18})")
_HIDDEN = re.compile(r"\.(tmp|old|gone)-step-(\d{8,18})-.*")


def checkpoints_dir(run_dir: Path | str) -> Path:
    """Folder that holds a run's checkpoints."""
    return Path(run_dir) / "checkpoints"


def step_name(step: int) -> str:
    """Folder name of the checkpoint after `step` optimizer steps."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """The step of a complete checkpoint's folder name, else None."""
    match = _STEP.fullmatch(name)
    return int(match.group(1)) if match else None


def hidden_kind(name: str) -> tuple[str, int] | None:
    """(tmp, old or gone; step) of a passing folder's name, else None."""
    match = _HIDDEN.fullmatch(name)
    return (match.group(1), int(match.group(2))) if match else None


def new_attempt() -> str:
    """A name for this attempt that no other process or earlier start has."""
    return f"{os.getpid()}-{secrets.token_hex(4)}"


def step_folders(run_dir: Path | str) -> list[tuple[int, Path]]:
    """(step, folder) of each checkpoint that carries a complete one's name, newest step first."""
    found = [(step_of(path.name), path) for path in _entries(run_dir)]
    return sorted(((step, path) for step, path in found if step is not None), reverse=True)


def hidden_folders(run_dir: Path | str, kind: str) -> list[tuple[int, Path]]:
    """(step, folder) of each passing folder of `kind`."""
    found = [(hidden_kind(path.name), path) for path in _entries(run_dir)]
    return sorted((parts[1], path) for parts, path in found if parts is not None and parts[0] == kind)


def _entries(run_dir: Path | str) -> list[Path]:
    folder = checkpoints_dir(run_dir)
    return list(folder.iterdir()) if folder.is_dir() else []
