"""Proves the commit protocol: whatever call fails, the previous checkpoint stays whole, and no stump is left."""

import errno
from pathlib import Path

import pytest
import torch
from checkpoint_doubles import FaultyStorage, same_files, training_files
from safetensors.torch import load_file

from stoker.core.errors import RunError
from stoker.engine.checkpoint import (
    FreeSpace,
    LocalStorage,
    checkpoint_bytes,
    find_resume,
    list_steps,
    open_checkpoint,
    prune,
    require_space_for_run,
    save_checkpoint,
    steps_to_keep,
)


def _loaded(run_dir: Path, step: int) -> dict[str, dict[str, torch.Tensor]]:
    point = open_checkpoint(run_dir, step)
    return {file: point.load(file) for file in point.files}


def _names(run_dir: Path) -> list[str]:
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def test_round_trip_is_bitwise_and_readable_by_others(tmp_path: Path) -> None:
    meta = {"loss": 0.1 + 0.2, "best": float("-inf"), "rng": {"seed": 2**63 - 1}, "pair": (1, 2), "label": "여성"}
    saved = save_checkpoint(tmp_path, 200, training_files(200), meta, run_id="r1")
    assert saved.path == tmp_path / "checkpoints" / "step-00000200"
    scan = find_resume(tmp_path, run_id="r1")
    assert scan.newest is not None and scan.rejected == ()
    assert scan.newest.meta == meta and scan.newest.step == 200
    assert same_files({file: scan.newest.load(file) for file in scan.newest.files}, 200)
    by_others = {file: load_file(saved.path / f"{file}.safetensors") for file in ("model", "optimizer")}
    assert same_files(by_others, 200)
    assert saved.num_bytes == checkpoint_bytes(training_files(200))
    assert saved.num_bytes == sum(path.stat().st_size for path in saved.path.glob("*.safetensors"))


def test_order_of_calls_is_the_protocol(tmp_path: Path) -> None:
    storage = FaultyStorage()
    save_checkpoint(tmp_path / "run", 1, {"model": training_files(1)["model"]}, {}, storage=storage)
    assert storage.calls[:4] == ["make_dir", "fsync_dir", "make_dir", "fsync_dir"]  # run folder, checkpoints
    assert storage.calls[4] == "make_dir"
    assert [call for call in storage.calls[5:] if call != "write"] == [
        "create",
        "fsync",  # the file
        "create",
        "fsync",  # the manifest, last
        "fsync_dir",  # the attempt's folder
        "rename",
        "fsync_dir",  # the parent
    ]


@pytest.mark.parametrize("kind", ["make_dir", "create", "write", "fsync", "fsync_dir", "rename"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
def test_any_failing_call_keeps_the_previous_one_and_leaves_no_stump(tmp_path: Path, kind: str, error: int) -> None:
    """Case 14: a write error mid-save."""
    save_checkpoint(tmp_path, 1, training_files(1), {"n": 1})
    for nth in range(1, 30):
        storage = FaultyStorage(kind, nth, error)
        try:
            save_checkpoint(tmp_path, 2, training_files(2), {"n": 2}, storage=storage)
        except RunError as failure:
            assert failure.code == "ST451" and failure.fix
            after_rename = kind == "fsync_dir" and nth == 2  # complete, only its name may not survive a power cut
            assert _names(tmp_path) == ["step-00000001", *(["step-00000002"] if after_rename else [])]
            assert same_files(_loaded(tmp_path, 1), 1)
            if after_rename:
                assert same_files(_loaded(tmp_path, 2), 2)
                storage.remove_tree(tmp_path / "checkpoints" / "step-00000002")
            continue
        break
    else:
        pytest.fail("the fault never stopped coming")
    assert nth > 1, "the fault was never injected"
    assert same_files(_loaded(tmp_path, 2), 2)


def test_a_file_whose_fsync_failed_is_never_fsynced_again(tmp_path: Path) -> None:
    storage = FaultyStorage("fsync", 1, errno.EIO)
    with pytest.raises(RunError, match="ST451"):
        save_checkpoint(tmp_path, 2, training_files(2), {}, storage=storage)
    assert storage.calls.count("fsync") == 1 and storage.calls.count("create") == 1
    assert _names(tmp_path) == []


def test_short_writes_are_completed(tmp_path: Path) -> None:
    storage = FaultyStorage(short=97)
    save_checkpoint(tmp_path, 3, training_files(3), {}, storage=storage)
    assert storage.calls.count("write") > 100
    assert same_files(_loaded(tmp_path, 3), 3)


def test_the_same_step_again_replaces_the_former_and_survives_a_failing_swap(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 5, training_files(5), {"n": 1})
    for nth in (1, 2):
        with pytest.raises(RunError, match="ST451"):
            save_checkpoint(tmp_path, 5, training_files(5), {"n": 2}, storage=FaultyStorage("rename", nth))
        assert open_checkpoint(tmp_path, 5).meta == {"n": 1}
    save_checkpoint(tmp_path, 5, training_files(5), {"n": 2})
    assert open_checkpoint(tmp_path, 5).meta == {"n": 2}
    assert _names(tmp_path) == ["step-00000005"]


def test_a_kill_in_the_middle_of_the_swap_leaves_the_former_to_resume_from(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 5, training_files(5), {"n": 1})
    folder = tmp_path / "checkpoints"
    (folder / "step-00000005").rename(folder / ".old-step-00000005-1-x")
    scan = find_resume(tmp_path)
    assert scan.newest is not None and scan.newest.meta == {"n": 1}
    assert _names(tmp_path) == ["step-00000005"]


def test_stumps_of_killed_saves_are_named_then_cleared(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, training_files(1), {})
    stump = tmp_path / "checkpoints" / ".tmp-step-00000002-9-dead"
    stump.mkdir()
    (stump / "model.safetensors").write_bytes(b"half")
    scan = find_resume(tmp_path)
    assert scan.newest is not None and scan.newest.step == 1
    assert [rejected.path for rejected in scan.rejected] == [stump] and "cut short" in scan.rejected[0].reason
    saved = save_checkpoint(tmp_path, 2, training_files(2), {})
    assert saved.removed_stumps == (stump.name,)
    assert _names(tmp_path) == ["step-00000001", "step-00000002"]


def test_no_space_is_decided_before_a_byte_is_written_and_names_the_mount(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, training_files(1), {})
    small = FreeSpace(free_bytes=20_000, block_bytes=4096, inodes=None, mount="/mnt/out")
    storage = FaultyStorage(free=small)
    with pytest.raises(RunError, match=r"ST450.*") as caught:
        save_checkpoint(tmp_path, 2, training_files(2), {}, storage=storage)
    assert "/mnt/out" in caught.value.problem and "0.02 MB" in caught.value.problem
    assert storage.calls == []
    assert list_steps(tmp_path) == (1,)


def test_no_inodes_is_no_space(tmp_path: Path) -> None:
    full = FreeSpace(free_bytes=10**12, block_bytes=4096, inodes=2, mount="/mnt/out")
    with pytest.raises(RunError, match="ST450"):
        save_checkpoint(tmp_path, 2, training_files(2), {}, storage=FaultyStorage(free=full))


def test_exactly_enough_space_is_enough(tmp_path: Path) -> None:
    """The need is the exact files in whole blocks, so that no sound save is refused."""
    needed = sum(-(-checkpoint_bytes({"x": tensors}) // 4096) * 4096 for tensors in training_files(2).values())
    room = FreeSpace(free_bytes=needed + 4096 + 4 * 4096, block_bytes=4096, inodes=None, mount="/")
    save_checkpoint(tmp_path, 2, training_files(2), {}, storage=FaultyStorage(free=room))


def test_case_14_is_refused_before_step_1(tmp_path: Path) -> None:
    """8.03e9 parameters at 14 bytes, keep 3, 300 GB free: (3 + 1) x 112.4 = 449.7 GB."""
    each = int(8.03e9 * 14)
    out = FaultyStorage(free=FreeSpace(free_bytes=300 * 10**9, block_bytes=4096, inodes=None, mount="/mnt/out"))
    with pytest.raises(RunError) as caught:
        require_space_for_run(tmp_path / "not" / "yet", each, 3, out)
    assert caught.value.code == "ST450"
    for word in ("112.4 GB", "449.7 GB", "300.0 GB", "/mnt/out"):
        assert word in caught.value.problem
    assert not (tmp_path / "not").exists()
    roomy = FaultyStorage(free=FreeSpace(free_bytes=450 * 10**9, block_bytes=4096, inodes=None, mount="/mnt/out"))
    require_space_for_run(tmp_path, each, 3, roomy)


def test_space_is_that_of_the_run_folders_mount() -> None:
    space = LocalStorage().free_space(Path("/proc/self/not-there"))
    assert space.mount == "/proc" and space.free_bytes == 0


def test_a_writer_that_lost_its_lock_commits_nothing(tmp_path: Path) -> None:
    def fenced() -> None:
        raise RunError("ST456", "taken over")

    with pytest.raises(RunError, match="ST456"):
        save_checkpoint(tmp_path, 2, training_files(2), {}, before_commit=fenced)
    assert _names(tmp_path) == []


def test_what_cannot_be_stored_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="ST458") as caught:
        save_checkpoint(tmp_path, 2, {}, {"scheduler": {"function": print}})
    assert "scheduler.function" in caught.value.problem
    with pytest.raises(RunError, match="ST458"):
        save_checkpoint(tmp_path, 2, {"model": {"w": torch.eye(2).to_sparse()}}, {})
    with pytest.raises(RunError, match="ST458"):
        save_checkpoint(tmp_path, 2, {"model": {"../w": torch.eye(2)}}, {})


@pytest.mark.parametrize(("keep", "left"), [(2, (1, 4)), (1, (1, 4)), (3, (1, 3, 4)), (4, (1, 2, 3, 4))])
def test_case_12_best_and_last_stay(tmp_path: Path, keep: int, left: tuple[int, ...]) -> None:
    """Scores 0.9, 0.5, 0.4, 0.3: step 1 is best, pruned after each save."""
    for step, score in enumerate([0.9, 0.5, 0.4, 0.3], 1):
        save_checkpoint(tmp_path, step, training_files(step), {"score": score})
        pruned = prune(tmp_path, keep, best_step=1)
        assert pruned.problem == "" and pruned.kept == list_steps(tmp_path)
    assert list_steps(tmp_path) == left
    assert open_checkpoint(tmp_path, 1).meta["score"] == 0.9
    assert same_files(_loaded(tmp_path, 1), 1) and same_files(_loaded(tmp_path, 4), 4)
    assert not [name for name in _names(tmp_path) if name.startswith(".")]


def test_steps_to_keep_without_a_best() -> None:
    assert steps_to_keep([1, 2, 3, 4], 2, None) == {3, 4}
    assert steps_to_keep([1, 2, 3, 4], 2, 99) == {3, 4}
    assert steps_to_keep([1, 2, 3, 4], 2, 4) == {3, 4}
    assert steps_to_keep([], 2, 1) == frozenset()


def test_nothing_goes_while_the_newest_does_not_read_back(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, training_files(step), {})
    file = tmp_path / "checkpoints" / "step-00000003" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    pruned = prune(tmp_path, 1, None)
    assert pruned.deleted == () and "step 3" in pruned.problem
    assert list_steps(tmp_path) == (1, 2, 3)


def test_a_failing_deletion_is_told_and_harmless(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, training_files(step), {})
    pruned = prune(tmp_path, 1, None, storage=FaultyStorage("remove_tree", 1, errno.EIO))
    assert "step 1" in pruned.problem
    scan = find_resume(tmp_path)
    assert scan.newest is not None and scan.newest.step == 3
    save_checkpoint(tmp_path, 4, training_files(4), {})  # clears what the deletion left
    assert not [name for name in _names(tmp_path) if name.startswith(".")]


def test_large_files_are_hashed_in_chunks_alike_on_any_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"model": {"w": torch.arange(11_000_001, dtype=torch.int32), "b": torch.ones(7, dtype=torch.int8)}}
    monkeypatch.setattr("stoker.engine.checkpoint.digest.hash_threads", lambda: 1)
    one = save_checkpoint(tmp_path, 1, files, {})
    monkeypatch.setattr("stoker.engine.checkpoint.digest.hash_threads", lambda: 5)
    save_checkpoint(tmp_path, 2, files, {})
    a, b = open_checkpoint(tmp_path, 1), open_checkpoint(tmp_path, 2)
    assert a.manifest.files == b.manifest.files and one.num_bytes == 44_000_004 + 7 + len_header(one.path)
    assert torch.equal(b.load("model")["w"], files["model"]["w"])


def len_header(folder: Path) -> int:
    content = (folder / "model.safetensors").read_bytes()
    return 8 + int.from_bytes(content[:8], "little")
