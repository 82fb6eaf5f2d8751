"""The manifest of a checkpoint: written last, it says which files belong to it, their bytes and their digests.

It is checked whole: its own digest covers every field, and it must be, byte for byte, what this module writes.
"""

import hashlib
import json
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.core.codec import loads
from stoker.core.i18n import _
from stoker.core.safetensors_header import read_header
from stoker.engine.checkpoint.digest import DigestPool, digest_file

MANIFEST_NAME = "manifest.json"
MANIFEST_VERSION = 1
MAX_MANIFEST_BYTES = 256 << 20  # an optimizer's skeleton for 100,000 tensors is about 10 MB
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}\.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a checkpoint. `digest`: see `digest.py`."""

    num_bytes: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`meta` is JSON as stored; `saved_at` ISO 8601 UTC, for people: order is by `step` alone."""

    step: int
    run_id: str
    attempt: str
    saved_at: str
    versions: Mapping[str, str]
    files: Mapping[str, FileEntry]
    meta: Any

    @property
    def num_bytes(self) -> int:
        return sum(entry.num_bytes for entry in self.files.values())


def manifest_bytes(manifest: Manifest) -> bytes:
    """The manifest as its file holds it. Raises ValueError for a NaN in `meta`."""
    body = {
        "format": "stoker-checkpoint",
        "schema_version": MANIFEST_VERSION,
        "step": manifest.step,
        "run_id": manifest.run_id,
        "attempt": manifest.attempt,
        "saved_at": manifest.saved_at,
        "versions": dict(manifest.versions),
        "files": {name: [entry.num_bytes, entry.digest] for name, entry in manifest.files.items()},
        "meta": manifest.meta,
    }
    digest = hashlib.sha256(_canonical(body)).hexdigest()
    return _canonical({"manifest_sha256": digest, **body}) + b"\n"


def read_manifest(folder: Path) -> Manifest:
    """The manifest in `folder`, its own digest checked. Raises ValueError with the reason, OSError."""
    path = folder / MANIFEST_NAME
    try:
        info = path.lstat()
    except FileNotFoundError:
        raise ValueError(_("it has no {name}: the save was cut short").format(name=MANIFEST_NAME)) from None
    if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_MANIFEST_BYTES:
        raise ValueError(_("{name} is not a manifest").format(name=MANIFEST_NAME))
    content = path.read_bytes()
    try:
        body = loads(content.decode("utf-8"))
        digest = body.pop("manifest_sha256")
        if content != _canonical({"manifest_sha256": digest, **body}) + b"\n":
            raise ValueError("not as it was written")
        if hashlib.sha256(_canonical(body)).hexdigest() != digest:
            raise ValueError("its own digest differs")
        return _from_body(body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(_("{name} is damaged: {error}").format(name=MANIFEST_NAME, error=error)) from error


def _from_body(body: dict[str, Any]) -> Manifest:
    if body["format"] != "stoker-checkpoint" or body["schema_version"] != MANIFEST_VERSION:
        raise ValueError(f"format {body['format']!r:.40} version {body['schema_version']!r:.20}")
    files = {}
    for name, (size, digest) in body["files"].items():
        if not FILE_NAME.fullmatch(name) or type(size) is not int or size < 0 or not isinstance(digest, str):
            raise ValueError(f"file {name!r:.80}")
        files[name] = FileEntry(num_bytes=size, digest=digest)
    if type(body["step"]) is not int or body["step"] < 0:
        raise ValueError(f"step {body['step']!r:.40}")
    return Manifest(
        step=body["step"],
        run_id=body["run_id"],
        attempt=body["attempt"],
        saved_at=body["saved_at"],
        versions=body["versions"],
        files=files,
        meta=body["meta"],
    )


def verify_folder(folder: Path, *, step: int, run_id: str | None = None) -> Manifest:
    """Read every byte of the checkpoint in `folder` and compare it with its manifest.

    Raises ValueError with the reason where anything differs, also step or (when given) run; OSError.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise ValueError(_("it is not a folder"))
    manifest = read_manifest(folder)
    if manifest.step != step:
        raise ValueError(_("its manifest is of step {step}").format(step=manifest.step))
    if run_id is not None and manifest.run_id != run_id:
        raise ValueError(_("it belongs to another run ({run})").format(run=manifest.run_id))
    for name, entry in manifest.files.items():  # sizes first: they cost nothing
        _check_size(folder / name, entry)
    with DigestPool(manifest.num_bytes) as pool:
        for name, entry in manifest.files.items():
            if digest_file(folder / name, pool) != (entry.num_bytes, entry.digest):
                raise ValueError(_("{file} does not hold what was saved").format(file=name))
            try:
                read_header(folder / name)
            except ValueError as error:
                raise ValueError(_("{file} has a bad header: {error}").format(file=name, error=error)) from error
    return manifest


def _check_size(path: Path, entry: FileEntry) -> None:
    try:
        info = path.lstat()
    except FileNotFoundError:
        raise ValueError(_("{file} is missing").format(file=path.name)) from None
    if not stat.S_ISREG(info.st_mode):
        raise ValueError(_("{file} is not a regular file").format(file=path.name))
    if info.st_size != entry.num_bytes:
        raise ValueError(
            _("{file} has {size} bytes of {expected}").format(
                file=path.name, size=info.st_size, expected=entry.num_bytes
            )
        )


def _canonical(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
