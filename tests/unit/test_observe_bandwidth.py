"""Proves that rates are measured, bounded in time and room, kept per machine, and used by `this_machine`."""

import json
import time
from pathlib import Path

import pytest

from stoker.core.estimate import Source
from stoker.observe import bandwidth
from stoker.observe.here import cpu_device, this_machine
from stoker.observe.reading import Reading


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "_COPY_BYTES", 4 << 20)
    monkeypatch.setattr(bandwidth, "_DISK_BYTES", 32 << 20)
    monkeypatch.setattr(bandwidth, "_PROBE_S", 0.02)


def test_rates_are_plausible_and_no_trial_file_stays(small: None, tmp_path: Path) -> None:
    started = time.monotonic()
    rates = bandwidth.measure_rates(tmp_path)
    assert time.monotonic() - started < 20.0
    assert rates.ram_bytes_per_s is not None and 1e8 < rates.ram_bytes_per_s < 5e12
    assert rates.matmul_flops_per_s is not None and 1e8 < rates.matmul_flops_per_s < 1e15
    assert rates.disk_write_bytes_per_s is not None and 1e5 < rates.disk_write_bytes_per_s < 1e11
    assert rates.disk_place == str(tmp_path) and rates.gpu == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_not_measured() -> None:
    assert bandwidth.measure_disk(Path("/proc")) == (None, None)


def test_a_nearly_full_disk_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bandwidth, "disk_free_bytes", lambda folder: Reading(40e6))
    assert bandwidth.measure_disk(tmp_path) == (None, None)


def test_too_little_memory_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "usable_memory_bytes", lambda: Reading(8e6))
    assert bandwidth.measure_ram() is None


def _rates(**more: object) -> bandwidth.MachineRates:
    facts: dict[str, object] = {
        "machine": bandwidth.machine_name(), "num_cores": bandwidth.num_cores(), "date": "2026-01-02",
        "ram_bytes_per_s": 12e9, "matmul_flops_per_s": 70e9,
    }  # fmt: skip
    return bandwidth.MachineRates(**{**facts, **more})  # type: ignore[arg-type]


def test_kept_rates_come_back_and_other_machines_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "deep" / "rates.json"
    assert bandwidth.kept_rates(file) is None
    assert bandwidth.keep_rates(_rates(gpu="H200", pcie_up_bytes_per_s=55e9), file) == file
    bandwidth.keep_rates(_rates(ram_bytes_per_s=13e9), file)
    kept = bandwidth.kept_rates(file)
    assert kept is not None and kept.ram_bytes_per_s == 13e9
    assert kept.gpu == "H200" and kept.pcie_up_bytes_per_s == 55e9, "PCIe was not tried again: its rate stays"
    with monkeypatch.context() as other:
        other.setattr(bandwidth, "machine_name", lambda: "another host")
        assert bandwidth.kept_rates(file) is None
        bandwidth.keep_rates(_rates(ram_bytes_per_s=1e9), file)
    assert bandwidth.kept_rates(file) == kept
    assert len(json.loads(file.read_text(encoding="utf-8"))) == 2


@pytest.mark.parametrize("content", ["", "[]", "{", '{"x": NaN}', "null"])
def test_a_broken_cache_is_measured_anew_not_a_crash(tmp_path: Path, content: str) -> None:
    file = tmp_path / "rates.json"
    file.write_text(content)
    assert bandwidth.kept_rates(file) is None
    assert bandwidth.keep_rates(_rates(), file) == file
    assert bandwidth.kept_rates(file) == _rates()


@pytest.mark.parametrize("rate", [0.0, -1.0, 1e-308, 1e308])
def test_a_rate_that_no_machine_has_counts_as_not_measured(tmp_path: Path, rate: float) -> None:
    """A plan divides by it."""
    file = tmp_path / "rates.json"
    bandwidth.keep_rates(_rates(matmul_flops_per_s=rate), file)
    assert bandwidth.kept_rates(file) is None


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert bandwidth.keep_rates(_rates(), tmp_path / "file" / "rates.json") is None


def test_cpu_as_a_device_says_whether_it_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assumed = cpu_device(None)
    assert assumed.kind == "cpu" and assumed.source is Source.ASSUMED and "doctor" in assumed.note
    assert assumed.peak_flops_per_s["fp32"] > 0 and 0 < assumed.visible_bytes <= assumed.sold_bytes
    measured = cpu_device(_rates())
    assert measured.source is Source.MEASURED and "2026-01-02" in measured.note
    assert measured.peak_flops_per_s == {"fp32": 70e9} and measured.memory_bytes_per_s == 12e9
    assert cpu_device(_rates(matmul_flops_per_s=None)).source is Source.ASSUMED


def test_this_machine_reads_what_was_kept_and_measures_only_when_asked(
    small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bandwidth, "cache_file", lambda: tmp_path / "rates.json")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert this_machine(tmp_path).device.source is Source.ASSUMED
    cluster = this_machine(tmp_path, measure=True)
    assert cluster.device.source is Source.MEASURED
    assert this_machine(tmp_path).device.peak_flops_per_s == cluster.device.peak_flops_per_s
    assert cluster.host.disk_free_bytes and cluster.num_gpus == 1
