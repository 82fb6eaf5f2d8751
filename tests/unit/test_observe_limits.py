"""Proves that limits are read from cgroups v1 and v2, the tightest binding, and that nothing missing crashes."""

import os
from pathlib import Path

import pytest

from stoker.observe import limits
from stoker.observe.probe import allocator_memory, process_memory


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


_MEMINFO = "MemTotal:       65536000 kB\nMemFree: 1 kB\nMemAvailable:   32768000 kB\n"


def test_cgroup_v2_takes_the_tightest_ancestor_and_counts_droppable_cache_as_left(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "proc/meminfo": _MEMINFO,
            "proc/self/cgroup": "0::/pod/inner\n",
            "sys/fs/cgroup/pod/memory.max": "8000000000\n",
            "sys/fs/cgroup/pod/memory.current": "6000000000\n",
            "sys/fs/cgroup/pod/memory.stat": "anon 1\ninactive_file 3000000000\nactive_file 1000000000\n",
            "sys/fs/cgroup/pod/inner/memory.max": "max\n",
            "sys/fs/cgroup/pod/inner/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
        },
    )
    memory = limits.cgroup_memory(tmp_path)
    assert memory.limit_bytes.value == 8e9 and memory.available_bytes.value == 6e9
    assert limits.usable_memory_bytes(tmp_path).value == 6e9
    assert limits.cgroup_cpus(tmp_path).value == 1.5
    assert limits.num_cores(tmp_path) == min(2, len(os.sched_getaffinity(0)))


def test_cgroup_v1_in_a_container_that_sees_only_its_own_root(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "proc/meminfo": _MEMINFO,
            "proc/self/cgroup": "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "4294967296\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1073741824\n",
            "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 73741824\ntotal_active_file 0\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert limits.cgroup_memory(tmp_path).limit_bytes.value == 4294967296
    assert limits.usable_memory_bytes(tmp_path).value == 4294967296 - 1_000_000_000
    assert limits.num_cores(tmp_path) == 1


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n", "", "words\n"])
def test_no_limit_is_a_value_with_a_reason(tmp_path: Path, limit: str) -> None:
    _write(
        tmp_path,
        {
            "proc/meminfo": _MEMINFO,
            "proc/self/cgroup": "5:memory:/\n0::/\n",
            "sys/fs/cgroup/memory.max": limit,
            "sys/fs/cgroup/memory/memory.limit_in_bytes": limit,
            "sys/fs/cgroup/cpu.max": "",
        },
    )
    memory = limits.cgroup_memory(tmp_path)
    assert memory.limit_bytes.value is None and memory.limit_bytes.reason
    assert limits.usable_memory_bytes(tmp_path).value == 32768000 * 1024
    assert limits.cgroup_cpus(tmp_path).value is None


def test_an_empty_root_falls_back_to_the_operating_system(tmp_path: Path) -> None:
    total, available = limits.host_memory_bytes(tmp_path)
    assert total.value and available.value and available.value <= total.value
    assert limits.num_cores(tmp_path) == len(os.sched_getaffinity(0))
    missing = limits.shared_memory_bytes(tmp_path)
    assert missing.value is None and "dev/shm" in missing.reason


def test_disk_of_a_folder_that_is_not_yet_there(tmp_path: Path) -> None:
    deep = limits.disk_free_bytes(tmp_path / "a" / "b").value
    assert deep is not None and deep > 0
    proc = limits.disk_free_bytes(Path("/proc/none")).value
    assert proc == 0, "the nearest existing folder's file system counts, not the root's"


def test_affinity_bounds_the_cores() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert limits.num_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_process_memory_now_and_at_peak(tmp_path: Path) -> None:
    before = process_memory()
    block = bytearray(os.urandom(1 << 16)) * 1024  # 64 MiB
    during = process_memory()
    assert before.rss_bytes.value and during.rss_bytes.value and during.peak_rss_bytes.value
    assert during.rss_bytes.value - before.rss_bytes.value > 32 << 20
    assert during.peak_rss_bytes.value >= during.rss_bytes.value - (1 << 20)
    del block
    elsewhere = process_memory(tmp_path / "no proc here")
    assert elsewhere.rss_bytes.value and elsewhere.peak_rss_bytes.value


def test_allocator_is_not_asked_while_torch_is_not_loaded() -> None:
    assert allocator_memory(modules={}) is None


def test_allocator_figures() -> None:
    class Cuda:
        @staticmethod
        def is_initialized() -> bool:
            return True

        @staticmethod
        def memory_stats(device: object) -> dict[str, int]:
            return {"allocated_bytes.all.peak": 60, "reserved_bytes.all.peak": 80, "reserved_bytes.all.current": 70}

    class Torch:
        cuda = Cuda

    memory = allocator_memory(modules={"torch": Torch})
    assert memory is not None and memory.peak_allocated_bytes == 60
    assert (memory.allocated_bytes, memory.reserved_bytes, memory.peak_reserved_bytes) == (0, 70, 80)
