"""Proves that resume takes the newest checkpoint that is whole, says what is wrong with the others, deletes nothing."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkpoint_doubles import same_files, training_files

from stoker.core.errors import RunError
from stoker.engine.checkpoint import find_resume, list_steps, open_checkpoint, save_checkpoint


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Checkpoints 100 and 200 of run r1."""
    for step in (100, 200):
        save_checkpoint(tmp_path, step, training_files(step), {"step": step}, run_id="r1")
    return tmp_path


def _folder(run_dir: Path, step: int) -> Path:
    return run_dir / "checkpoints" / f"step-{step:08d}"


def _cut(path: Path, at: int) -> None:
    path.write_bytes(path.read_bytes()[:at])


def _rewrite_manifest(folder: Path, change: Callable[[dict[str, object]], None]) -> None:
    """A manifest that lies with a right digest of its own: as a careful stranger would write it."""
    body = json.loads((folder / "manifest.json").read_text())
    del body["manifest_sha256"]
    change(body)
    text = json.dumps(body, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / "manifest.json").write_text(f'{{"manifest_sha256":"{digest}",{text[1:]}\n')


def _resumes_from_100(run_dir: Path, reason: str) -> None:
    scan = find_resume(run_dir, run_id="r1")
    assert scan.newest is not None and scan.newest.step == 100
    assert same_files({file: scan.newest.load(file) for file in scan.newest.files}, 100)
    (rejected,) = scan.rejected
    assert reason in rejected.reason
    assert rejected.path.name.startswith(".bad-step-00000200-") and rejected.path.is_dir()
    assert list_steps(run_dir) == (100,)
    save_checkpoint(run_dir, 200, training_files(200), {}, run_id="r1")  # the step is free to be saved again
    assert rejected.path.is_dir(), "what was set aside is never deleted"


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a: state file missing": (lambda f: (f / "optimizer.safetensors").unlink(), "optimizer.safetensors is missing"),
    "b: weights cut": (lambda f: _cut(f / "model.safetensors", 4321), "model.safetensors has 4321 bytes of"),
    "c: 0-byte shard": (lambda f: _cut(f / "model.safetensors", 0), "has 0 bytes of"),
    "d: no manifest": (lambda f: (f / "manifest.json").unlink(), "no manifest.json"),
    "manifest cut": (lambda f: _cut(f / "manifest.json", 200), "manifest.json is damaged"),
    "manifest empty": (lambda f: _cut(f / "manifest.json", 0), "manifest.json is damaged"),
    "shard of another step": (
        lambda f: shutil.copy(f.parent / "step-00000100" / "model.safetensors", f / "model.safetensors"),
        "does not hold what was saved",
    ),
    "manifest of another step": (
        lambda f: shutil.copy(f.parent / "step-00000100" / "manifest.json", f / "manifest.json"),
        "of step 100",
    ),
    "swapped files": (
        lambda f: [
            (f / "model.safetensors").rename(f / "x"),
            (f / "optimizer.safetensors").rename(f / "model.safetensors"),
            (f / "x").rename(f / "optimizer.safetensors"),
        ],
        "bytes of",
    ),
    "longer": (lambda f: (f / "model.safetensors").open("ab").write(b"\0"), "bytes of"),
    "a folder in a file's place": (
        lambda f: [(f / "model.safetensors").unlink(), (f / "model.safetensors").mkdir()],
        "not a regular file",
    ),
    "a link in a file's place": (
        lambda f: [
            (f / "model.safetensors").rename(f.parent / "elsewhere"),
            (f / "model.safetensors").symlink_to(f.parent / "elsewhere"),
        ],
        "not a regular file",
    ),
    "lies about a size": (
        lambda f: _rewrite_manifest(f, lambda b: b["files"]["model.safetensors"].__setitem__(0, 9)),  # type: ignore[index]
        "bytes of 9",
    ),
    "lies about a digest": (
        lambda f: _rewrite_manifest(f, lambda b: b["files"]["model.safetensors"].__setitem__(1, "0" * 64)),  # type: ignore[index]
        "does not hold what was saved",
    ),
    "names a file outside": (
        lambda f: _rewrite_manifest(f, lambda b: b["files"].update({"../step.safetensors": [9, "0"]})),  # type: ignore[attr-defined]
        "manifest.json is damaged",
    ),
    "a size that is a word": (
        lambda f: _rewrite_manifest(f, lambda b: b["files"].update({"model.safetensors": ["9", "0"]})),  # type: ignore[attr-defined]
        "manifest.json is damaged",
    ),
    "another format": (lambda f: _rewrite_manifest(f, lambda b: b.update(schema_version=99)), "damaged"),
    "meta of no state": (lambda f: _rewrite_manifest(f, lambda b: b.update(meta={"$tensor": "x"})), "$tensor"),
    "bad step": (lambda f: _rewrite_manifest(f, lambda b: b.update(step=True)), "damaged"),
    "of another run": (lambda f: _rewrite_manifest(f, lambda b: b.update(run_id="r2")), "another run (r2)"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_case_9_damaged_newest_falls_back_to_the_one_before(run_dir: Path, name: str) -> None:
    damage, reason = DAMAGES[name]
    damage(_folder(run_dir, 200))
    _resumes_from_100(run_dir, reason)


def test_every_cut_of_the_weights_is_found(run_dir: Path) -> None:
    """Case 9 (b), at random bytes."""
    whole = (_folder(run_dir, 200) / "model.safetensors").read_bytes()
    for at in random.Random(9).sample(range(len(whole)), 60):
        _cut(_folder(run_dir, 200) / "model.safetensors", at)
        scan = find_resume(run_dir, set_aside=False)
        assert scan.newest is not None and scan.newest.step == 100
        (_folder(run_dir, 200) / "model.safetensors").write_bytes(whole)
    scan = find_resume(run_dir)
    assert scan.newest is not None and scan.newest.step == 200 and scan.rejected == ()


def test_any_flipped_bit_in_any_file_is_found_and_no_clean_load_alarms(run_dir: Path) -> None:
    chance = random.Random(1)
    files = sorted(_folder(run_dir, 200).iterdir())
    assert [file.name for file in files] == ["manifest.json", "model.safetensors", "optimizer.safetensors"]
    for _trial in range(300):
        file = chance.choice(files)
        whole = file.read_bytes()
        mutated = bytearray(whole)
        mutated[chance.randrange(len(mutated))] ^= 1 << chance.randrange(8)
        file.write_bytes(mutated)
        with pytest.raises(RunError, match="ST452"):
            open_checkpoint(run_dir, 200)
        file.write_bytes(whole)
        assert open_checkpoint(run_dir, 200).step == 200


def test_a_file_that_changes_after_the_scan_is_not_loaded(run_dir: Path) -> None:
    point = open_checkpoint(run_dir, 200)
    file = _folder(run_dir, 200) / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 4
    file.write_bytes(content)
    with pytest.raises(RunError, match="ST452"):
        point.load("model")
    _cut(file, 100)
    with pytest.raises(RunError, match="ends at byte 100"):
        point.load("model")
    file.write_bytes(bytes(content) + b"more")
    with pytest.raises(RunError, match="longer"):
        point.load("model")
    with pytest.raises(RunError, match="does not list"):
        point.load("../../secret")
    assert point.load("optimizer")["state.0.step"].item() == 200.0


def test_nothing_valid_is_a_fresh_start_with_both_reasons(run_dir: Path) -> None:
    for step in (100, 200):
        (_folder(run_dir, step) / "manifest.json").unlink()
    scan = find_resume(run_dir)
    assert scan.newest is None and len(scan.rejected) == 2
    assert find_resume(run_dir / "not there").newest is None
    assert not (run_dir / "not there").exists()


def test_looking_without_setting_aside_changes_nothing(run_dir: Path) -> None:
    (_folder(run_dir, 200) / "manifest.json").unlink()
    before = sorted(path.name for path in (run_dir / "checkpoints").iterdir())
    scan = find_resume(run_dir, set_aside=False)
    assert scan.rejected[0].path == _folder(run_dir, 200)
    assert sorted(path.name for path in (run_dir / "checkpoints").iterdir()) == before


def test_order_is_by_step_not_by_time(run_dir: Path) -> None:
    import os

    os.utime(_folder(run_dir, 100), (4e9, 4e9))
    save_checkpoint(run_dir, 100_000_000_0, training_files(1), {}, run_id="r1")
    scan = find_resume(run_dir)
    assert scan.newest is not None and scan.newest.step == 1_000_000_000


def test_strange_names_are_left_alone(run_dir: Path) -> None:
    for name in ("step-200", "step-0000abcd", "notes", ".bad-step-00000300-1-x"):
        (run_dir / "checkpoints" / name).mkdir()
    (run_dir / "checkpoints" / "step-00000900").write_text("a file")
    scan = find_resume(run_dir)
    assert scan.newest is not None and scan.newest.step == 200
    assert "not a folder" in scan.rejected[0].reason


def test_a_hostile_tensor_file_with_a_right_manifest_is_still_refused(run_dir: Path) -> None:
    """The digest only says that bytes did not change; the header is judged on its own."""
    from stoker.engine.checkpoint.digest import DigestPool, digest_file

    entry = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    text = f'{{"../../etc/x":{entry}}}'.encode()
    file = _folder(run_dir, 200) / "model.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"\0\0\0\0")
    with DigestPool(0) as pool:
        facts = list(digest_file(file, pool))
    _rewrite_manifest(file.parent, lambda body: body["files"].update({file.name: facts}))  # type: ignore[attr-defined]
    _resumes_from_100(run_dir, "bad header")


def test_tensors_come_back_usable_and_aligned(tmp_path: Path) -> None:
    tensors = {
        "flag": torch.tensor([True, False, True]),
        "half": torch.tensor([1.5], dtype=torch.float16),
        "wide": torch.tensor([[2**62]], dtype=torch.int64),
        "empty": torch.empty(0, 5, dtype=torch.float64),
        "scalar": torch.tensor(float("nan")),
        "complex": torch.tensor([1 + 2j], dtype=torch.complex64),
        "strided": torch.arange(12.0).reshape(3, 4).T,
        "f8": torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
    }
    save_checkpoint(tmp_path, 1, {"odd": tensors}, {})
    loaded = open_checkpoint(tmp_path, 1).load("odd")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and loaded[name].shape == tensor.shape
        assert bytes(loaded[name].contiguous().reshape(-1).view(torch.uint8).numpy()) == bytes(
            tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
        )
    loaded["strided"].add_(1.0)  # writable
