"""`stoker offers`: JSON with the documented keys, a table that names product and date, exit 2 for unknown names."""

import json
import subprocess
import sys

import pytest


def stoker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "stoker", *arguments], capture_output=True, encoding="utf-8")


def test_offers_json() -> None:
    done = stoker("offers", "--gpu", "H100 SXM", "--count", "8", "--kind", "on_demand", "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    entries = document["offers"]
    assert len(entries) >= 8
    keys = {"provider", "instance", "region", "gpu", "gpu_count", "price_kind", "usd_per_hour", "observed_at", "source"}
    for entry in entries:
        assert keys <= set(entry)
        assert (entry["gpu"], entry["gpu_count"], entry["price_kind"]) == ("H100-SXM5-80GB", 8, "on_demand")
        assert entry["age_days"] >= 0
    prices = [entry["usd_per_hour"] for entry in entries]
    assert prices == sorted(prices)
    assert document["offers_snapshot"]["date"]


def test_offers_table_names_each_product_and_its_date() -> None:
    done = stoker("offers", "--gpu", "H100", "--max-usd-per-hour", "4")
    assert done.returncode == 0
    assert "H100-PCIe-80GB" in done.stdout and "H100-SXM5-80GB" in done.stdout
    assert "2026-08-23" in done.stdout
    assert "KRW" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--gpu", "H10"), "ST301"),
        (("--provider", "awz"), "ST303"),
        (("--kind", "cheap"), "ST303"),
        (("--region", "mars"), "ST303"),
    ],
)
def test_offers_bad_names_exit_2(arguments: tuple[str, ...], code: str) -> None:
    done = stoker("offers", *arguments)
    assert done.returncode == 2
    assert code in done.stderr
    assert not done.stdout
