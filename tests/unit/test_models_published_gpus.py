"""Proves that GPU names of measurement tables mean the right product, that a name without its form says so, and that
an unknown card is None and not its neighbour."""

import csv
from pathlib import Path

import pytest

from stoker.catalogue.gpus import find_device, published_device
from stoker.core.errors import PlanningError
from stoker.core.units import GB, TFLOP


@pytest.mark.parametrize(
    ("name", "mem_gb", "meant", "certain"),
    [
        ("A100-80GB", 80, "A100-SXM4-80GB", False),
        ("A100", 40, "A100-SXM4-40GB", False),
        ("8xA100", 80, "A100-SXM4-80GB", False),
        ("A100 PCIe 80GB", None, "A100-PCIe-80GB", True),
        ("H100", None, "H100-SXM5-80GB", False),
        ("H100", 94, "H100-NVL-94GB", True),
        ("DGX H100", 80, "H100-SXM5-80GB", False),
        ("H100-80GB-SXM", 80, "H100-SXM5-80GB", True),
        ("V100-32GB", 32, "V100-SXM2-32GB", False),
        ("RTX 6000", 48, "RTX-6000-Ada", True),
        ("RTX4090", 24, "RTX4090", True),
        ("4x RTX 4090", None, "RTX4090", True),
        ("T4 x2", None, "T4", True),
        ("2080Ti", 11, "RTX2080Ti", True),
        ("MI250X", 128, "MI250X-GCD-64GB", True),
        ("GB300", 279, "GB300-279GB", True),
        ("W7800", 32, "W7800-32GB", True),
    ],
)
def test_name_of_a_table(name: str, mem_gb: float | None, meant: str, certain: bool) -> None:
    found = published_device(name, mem_gb)
    assert found is not None
    assert (found[0].name, found[1]) == (meant, certain)


@pytest.mark.parametrize("name", ["unstated", "", "K80", "M1 Max", "H1000", "any card"])
def test_an_unknown_card_is_none(name: str) -> None:
    assert published_device(name) is None


def test_a_size_that_no_product_of_the_name_has_is_none() -> None:
    assert published_device("A100", 24.0) is None


def test_any_card_has_the_size_that_the_row_states() -> None:
    found = published_device("any 48GB card", 48.0)
    assert found is not None
    device, certain = found
    assert not certain and device.sold_bytes == 48 * GB and 0 < device.visible_bytes < 48 * 2**30


def test_hbm2e_h100_has_a_peak_only_here() -> None:
    """torchtitan's footnote: between SXM (989.5) and NVL (835.5); the strict table has none."""
    found = published_device("H100-96GB-HBM2e", 96.0)
    assert found is not None and not found[1]
    assert found[0].peak_flops_per_s["bf16"] / TFLOP == pytest.approx(912.5)
    assert not find_device("H100-SXM5-96GB-HBM2e").peak_flops_per_s


def test_case_45_the_strict_look_up_still_asks() -> None:
    with pytest.raises(PlanningError, match=r"H100-SXM5-80GB.*H100-PCIe-80GB.*H100-NVL-94GB"):
        find_device("H100")


def test_every_gpu_of_the_public_rows_resolves(shared: Path) -> None:
    with (shared / "data" / "validation" / "measured.csv").open(encoding="utf-8", newline="") as file:
        named = {(row["gpu"], row["gpu_mem_gb"]) for row in csv.DictReader(file)}
    missing = {name for name, size in named if published_device(name, float(size) if size else None) is None}
    assert missing == {"unstated"}
