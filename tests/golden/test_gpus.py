"""The GPU table: each of the survey's 24 discrepancies has the right value here, and the whole table is consistent.

Golden values come from the vendor figures named in data/gpus.csv; the discrepancies from the survey of 2026-11.
"""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.catalogue.gpus import (
    all_devices,
    default_devices,
    device_from_driver_name,
    find_device,
    matching_devices,
)
from stoker.catalogue.links import all_links, node_fabric
from stoker.catalogue.tables import read_rows
from stoker.core.errors import PlanningError
from stoker.core.estimate import Source
from stoker.core.hardware import Device
from stoker.core.units import GB, GIB, TFLOP


def tflops(name: str, dtype: str) -> float:
    return find_device(name).peak_flops_per_s[dtype] / TFLOP


def mfu_peaks() -> bool:
    """No GPU of this list has an A100's peak, which a well-known look-up falls back to."""
    names = ("RTX4090", "L4", "T4", "A10G", "RTX-6000-Ada", "L40S")
    return [tflops(n, "fp16") for n in names] == [165.2, 121, 65, 70, 364.2, 362]


def memory(name: str) -> float:
    return find_device(name).sold_bytes / GB


def bandwidth(name: str) -> float:
    return find_device(name).memory_bytes_per_s / GB


# (gpu, field) as the discrepancy table names them -> what must hold of ours
DISCREPANCIES: dict[tuple[str, str], Callable[[], bool]] = {
    ("L4", "fp16 TFLOPS"): lambda: tflops("L4", "fp16") == 121,
    ("L40S", "fp16 TFLOPS"): lambda: tflops("L40S", "fp16") == 362,
    ("A100", "fp16 TFLOPS"): lambda: {tflops(d.name, "fp16") for d in matching_devices("A100")} == {312},
    ("H100 SXM", "fp16 TFLOPS"): lambda: tflops("H100 SXM", "fp16") == 989.5,
    ("H200", "fp16 TFLOPS"): lambda: tflops("H200-SXM-141GB", "fp16") == 989.5 and tflops("H200 NVL", "fp16") == 835.5,
    ("RTX 4090", "bf16 TFLOPS"): lambda: tflops("RTX 4090", "bf16") == 165.2,
    ("RTX 5090", "bf16 TFLOPS"): lambda: tflops("RTX 5090", "bf16") == 209.5,
    ("RTX 4090 / L4 / T4 / A10G / 6000 Ada / L40S", "peak for MFU"): mfu_peaks,
    ("A10G", "fp16 TFLOPS"): lambda: tflops("A10G", "fp16") == 70 and tflops("A10", "fp16") == 125,
    ("A10", "memory"): lambda: memory("A10") == 24,
    ("V100-SXM-16GB", "memory"): lambda: memory("V100-SXM2-16GB") == 16,
    ("A100 PCIe", "intra-node bw"): lambda: (
        {find_device(n).link_bytes_per_s for n in ("A100-PCIe-40GB", "A100-PCIe-80GB")} == {31.5 * GB}
    ),
    ("MI250/MI210", "int8"): lambda: all(
        tflops(n, "int8") == tflops(n, "fp16") for n in ("MI250", "MI250X-GCD-64GB", "MI210")
    ),
    ("MI325X", "memory"): lambda: memory("MI325X") == 256,
    ("MI300X/MI325X", "bandwidth"): lambda: (bandwidth("MI300X"), bandwidth("MI325X")) == (5300, 6000),
    ("B200", "memory/bandwidth"): lambda: memory("B200") == 180 and 7700 <= bandwidth("B200") <= 8000,
    ("B300", "memory"): lambda: memory("B300") == 270,
    ("B300", "fp16"): lambda: tflops("B300", "fp16") == 2250,
    ("L40S", "TDP"): lambda: find_device("L40S").tdp_w == 350,
    ("V100 SXM2", "TDP"): lambda: {d.tdp_w for d in matching_devices("V100 SXM2")} == {300},
    ("RTX A6000", "fp16"): lambda: tflops("RTX A6000", "fp16") == 154.8,
    ("H100 (Meta Grand Teton)", "HBM/peak"): lambda: (
        not find_device("H100-SXM5-96GB-HBM2e").peak_flops_per_s
        and bandwidth("H100-SXM5-96GB-HBM2e") == 2400
        and find_device("H100-SXM5-96GB-HBM2e").tdp_w == 500
    ),
    ("TPU v5e/v5p", "HBM bandwidth"): lambda: (bandwidth("TPU v5e"), bandwidth("TPU v5p")) == (819, 2765),
    ("all", "GB vs GiB"): lambda: (
        find_device("A100-SXM4-80GB").visible_bytes == round(79.2 * GIB)
        and find_device("T4").visible_bytes == 14912 * 2**20
        and all(22 * GIB <= find_device(n).visible_bytes <= 24 * GIB for n in ("RTX3090", "RTX4090", "A10G", "L4"))
    ),
}


@pytest.mark.parametrize(("gpu", "field"), DISCREPANCIES)
def test_a_published_error_is_not_ours(gpu: str, field: str) -> None:
    assert DISCREPANCIES[gpu, field]()


def test_every_discrepancy_of_the_survey_is_tested(shared: Path) -> None:
    with (shared / "data" / "gpu_spec_discrepancies.csv").open(encoding="utf-8", newline="") as file:
        listed = {(row["gpu"], row["field"]) for row in csv.DictReader(file)}
    assert listed == set(DISCREPANCIES)
    assert len(DISCREPANCIES) == 24


def test_case_45_three_h100_products_have_their_own_figures() -> None:
    sxm, pcie, nvl = (find_device(n) for n in ("H100-SXM5-80GB", "H100-PCIe-80GB", "H100-NVL-94GB"))
    assert [d.peak_flops_per_s["bf16"] / TFLOP for d in (sxm, pcie, nvl)] == [989.5, 756, 835.5]
    assert [d.sold_bytes / GB for d in (sxm, pcie, nvl)] == [80, 80, 94]
    slower = sxm.peak_flops_per_s["bf16"] / pcie.peak_flops_per_s["bf16"]
    assert slower == pytest.approx(1.31, abs=0.005)


def test_an_ambiguous_name_lists_its_products() -> None:
    with pytest.raises(PlanningError) as caught:
        find_device("H100")
    assert caught.value.code == "ST301"
    for name in ("H100-SXM5-80GB", "H100-PCIe-80GB", "H100-NVL-94GB"):
        assert name in caught.value.problem
    assert "HBM2e" not in caught.value.problem
    with pytest.raises(PlanningError) as caught:
        find_device("a100 80gb")
    assert "A100-SXM4-80GB" in caught.value.problem
    assert "40GB" not in caught.value.problem


@pytest.mark.parametrize(
    ("typo", "meant"), [("H10", "H100-SXM5-80GB"), ("A100-SMX4-40GB", "A100-SXM4-40GB"), ("RTX 409", "RTX4090")]
)
def test_a_typo_gets_the_nearest_names(typo: str, meant: str) -> None:
    with pytest.raises(PlanningError) as caught:
        find_device(typo)
    assert caught.value.code == "ST301"
    assert meant in caught.value.fix


def test_a_name_near_nothing_still_gets_examples() -> None:
    with pytest.raises(PlanningError) as caught:
        find_device("@@@")
    assert "A100-SXM4-40GB" in caught.value.fix


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("h100 sxm", "H100-SXM5-80GB"),
        ("h100-80gb-sxm", "H100-SXM5-80GB"),
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("rtx_4090", "RTX4090"),
        ("GeForce RTX 4090", "RTX4090"),
        ("A100 40GB SXM4", "A100-SXM4-40GB"),
        ("l4", "L4"),
        ("Tesla T4", "T4"),
        ("MI300X", "MI300X-192GB"),
    ],
)
def test_case_spaces_dashes_and_makers_do_not_count(written: str, meant: str) -> None:
    assert find_device(written).name == meant


@pytest.mark.parametrize(
    ("driver", "gib", "meant"),
    [
        ("NVIDIA H100 80GB HBM3", 79.18, "H100-SXM5-80GB"),
        ("NVIDIA H100 PCIe", 79.1, "H100-PCIe-80GB"),
        ("NVIDIA H800", 79.1, "H800-SXM5-80GB"),
        ("NVIDIA H800 PCIe", 79.1, "H800-PCIe-80GB"),
        ("NVIDIA A800-SXM4-80GB", 79.2, "A800-SXM4-80GB"),
        ("NVIDIA A800 80GB PCIe", 79.2, "A800-PCIe-80GB"),
        ("NVIDIA H100 NVL", 93.1, "H100-NVL-94GB"),
        ("NVIDIA H200", 139.8, "H200-SXM-141GB"),
        ("NVIDIA H200 NVL", 139.8, "H200-NVL-141GB"),
        ("NVIDIA A100-SXM4-40GB", 39.39, "A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", 79.15, "A100-PCIe-80GB"),
        ("Tesla T4", 14.56, "T4"),
        ("Tesla V100-SXM2-32GB", 31.74, "V100-SXM2-32GB"),
        ("NVIDIA L40S", 44.4, "L40S"),
        ("NVIDIA B200", 178.36, "B200-SXM-180GB"),
        ("NVIDIA GeForce RTX 3080", 9.77, "RTX3080-10GB"),
        ("NVIDIA RTX 6000 Ada Generation", 47.5, "RTX-6000-Ada"),
        ("AMD Instinct MI300X", 191.98, "MI300X-192GB"),
        ("NVIDIA GeForce RTX 3080", 11.9, None),  # the 12 GB card is another product
        ("NVIDIA H100 80GB HBM3", 9.5, None),  # a slice of one
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9.5, None),
        ("NVIDIA GTX 1080", 8.0, None),
    ],
)
def test_driver_names(driver: str, gib: float, meant: str | None) -> None:
    found = device_from_driver_name(driver, round(gib * GIB))
    assert (found.name if found else None) == meant


def test_the_table_has_the_parts_that_clouds_rent() -> None:
    assert len(all_devices()) >= 60
    assert {"L4", "A100-SXM4-40GB", "H100-SXM5-80GB", "H200-SXM-141GB", "B200-SXM-180GB"} <= {
        d.name for d in default_devices()
    }
    assert all(d.kind == "cuda" and d.peak_flops_per_s for d in default_devices())


@pytest.mark.parametrize("device", all_devices(), ids=lambda d: d.name)
def test_row_is_consistent(device: Device) -> None:
    peaks = device.peak_flops_per_s
    assert device.sources
    assert device.launch_year is not None and 2016 <= device.launch_year <= 2026
    assert 0.85 < device.visible_bytes / GIB / (device.sold_bytes / GB) <= 1.0
    assert 100 * GB < device.memory_bytes_per_s < 10_000 * GB
    assert 0 < device.pcie_bytes_per_s <= 450 * GB
    assert device.link_bytes_per_s >= device.pcie_bytes_per_s or device.name == "GH200-96GB"
    assert (device.compute_capability is not None) == (device.kind == "cuda")
    if device.compute_capability and device.compute_capability < (8, 0):
        assert not device.supports("bf16") and not device.supports("tf32")
    if device.compute_capability and device.compute_capability >= (8, 0) and peaks:
        assert peaks["bf16"] == peaks["fp16"] >= peaks["tf32"]
    if device.compute_capability and device.compute_capability < (8, 9):
        assert not device.supports("fp8")
    if "fp8" in peaks and device.kind != "other":
        assert peaks["fp8"] == pytest.approx(2 * peaks["fp16"], rel=0.02)  # a sparse rate would be four times


def test_names_are_unique_and_aliases_name_rows() -> None:
    names = [d.name for d in all_devices()]
    assert len(set(names)) == len(names)
    rows = list(read_rows("gpu_aliases.csv"))
    assert {row["gpu"] for row in rows} <= set(names)
    assert all(find_device(name).name == name for name in names)
    pairs = [(row["alias"], row["gpu"]) for row in rows]
    assert len(set(pairs)) == len(pairs)


def test_measured_memory_says_so() -> None:
    measured = {d.name: d.visible_bytes / GIB for d in all_devices() if d.visible_source is Source.MEASURED}
    assert measured == pytest.approx(
        {
            "T4": 14.5625,
            "RTX-A6000": 47.40,
            "H100-SXM5-80GB": 79.18,
            "H200-SXM-141GB": 139.80,
            "B200-SXM-180GB": 178.36,
        },
        rel=1e-6,
    )


def test_links_are_one_direction() -> None:
    assert find_device("A100-SXM4-80GB").link_bytes_per_s == 300 * GB  # 600 both ways
    assert find_device("H100-SXM5-80GB").link_bytes_per_s == 450 * GB
    assert find_device("H100-NVL-94GB").link_max_gpus == 2
    assert all_links()["pcie4x16"].bytes_per_s == 16e9 * 16 * 128 / 130 / 8 // 1e8 * 1e8  # 31.5 of 31.508
    fabric = node_fabric("aws", "p4d.24xlarge")
    assert fabric is not None and fabric.bytes_per_s == 400e9 / 8
    assert node_fabric("lambda", "gpu_8x_h100_sxm") is None


@pytest.mark.parametrize("name", ["H800", "A800"])
def test_a_plain_name_of_a_module_and_a_pcie_board_is_an_error_that_names_both(name: str) -> None:
    with pytest.raises(PlanningError) as raised:
        find_device(name)
    assert raised.value.code == "ST301"
    assert "SXM" in raised.value.problem and f"{name}-PCIe-80GB" in raised.value.problem
