"""Saved training state: written by a commit protocol, verified byte by byte before use, never pickled."""

from stoker.engine.checkpoint.commit import SavedCheckpoint, clear_stumps, save_checkpoint
from stoker.engine.checkpoint.lock import RunLock
from stoker.engine.checkpoint.resume import (
    Rejected,
    ResumePoint,
    ResumeScan,
    find_resume,
    list_steps,
    open_checkpoint,
)
from stoker.engine.checkpoint.retention import Pruned, prune, steps_to_keep
from stoker.engine.checkpoint.space import checkpoint_bytes, require_space_for_run
from stoker.engine.checkpoint.state_io import flatten_state, unflatten_state
from stoker.engine.checkpoint.storage import FreeSpace, LocalStorage, Storage
from stoker.engine.checkpoint.tensor_file import AnyTensor, StreamedTensor

__all__ = [
    "AnyTensor",
    "FreeSpace",
    "LocalStorage",
    "Pruned",
    "Rejected",
    "ResumePoint",
    "ResumeScan",
    "RunLock",
    "SavedCheckpoint",
    "Storage",
    "StreamedTensor",
    "checkpoint_bytes",
    "clear_stumps",
    "find_resume",
    "flatten_state",
    "list_steps",
    "open_checkpoint",
    "prune",
    "require_space_for_run",
    "save_checkpoint",
    "steps_to_keep",
    "unflatten_state",
]
