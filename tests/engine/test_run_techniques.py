"""Proves that what may be priced may be run: every optimizer and 4-bit weights, whole and resumed, on a CPU.

A resumed run ends with the very weights of an unbroken one, so the optimizer's own state survives its checkpoint.
"""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tiny_jobs import LLAMA, plan_here, sums_job, write_sums

from stoker.engine.progress import Silent
from stoker.engine.run import run

pytestmark = pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU")
needs_bitsandbytes = pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
WIDE = {**LLAMA, "hidden_size": 64, "intermediate_size": 128}  # matrices of 4,096 elements have 8-bit states
CASES = [
    pytest.param({"train": {"optimizer": "adafactor", "lr": 3e-2}}, id="adafactor"),
    pytest.param({"train": {"optimizer": "lion", "lr": 1e-3}}, id="lion"),
    pytest.param({"train": {"optimizer": "muon", "lr": 3e-3}}, id="muon"),
    pytest.param({"train": {"optimizer": "adamw_8bit"}}, id="adamw_8bit", marks=needs_bitsandbytes),
    pytest.param({"train": {"optimizer": "paged_adamw"}}, id="paged_adamw", marks=needs_bitsandbytes),
    pytest.param({"tune": {"method": "qlora", "rank": 8}, "train": {"lr": 1e-2}}, id="qlora", marks=needs_bitsandbytes),
    pytest.param(
        {"tune": {"method": "qlora", "unquantised": "fp32", "double_quant": True}, "train": {"lr": 1e-2}},
        id="qlora-wide",
        marks=needs_bitsandbytes,
    ),
]


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sums(tmp_path_factory.mktemp("sums"))


@pytest.mark.parametrize("sections", CASES)
def test_it_learns_and_a_resumed_run_ends_alike(sums: Path, sections: dict[str, Any], tmp_path: Path) -> None:
    train = {"epochs": 2.0, **sections["train"]}
    plan = plan_here(sums, sums_job(sums, **{**sections, "train": train, "model": WIDE}))
    whole = tmp_path / "whole"
    record = run(plan, whole, progress=Silent())
    assert record.status == "finished"
    assert record.evals[-1].metrics["loss"] < record.evals[0].metrics["loss"]
    half = tmp_path / "half"
    shutil.copytree(whole, half)
    shutil.rmtree(half / "model")
    newest = max((half / "checkpoints").glob("step-*"))
    shutil.rmtree(newest)
    lines = (half / "record.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (half / "record.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")
    again = run(plan, half, progress=Silent())
    assert again.status == "finished" and any(event.name == "resume" for event in again.events)
    weights = sorted(path.name for path in (whole / "model").glob("*.safetensors"))
    assert weights
    for name in weights:
        assert (half / "model" / name).read_bytes() == (whole / "model" / name).read_bytes()
