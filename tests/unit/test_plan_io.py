"""plan.json has the published keys, holds only finite numbers, and reads back to the same plan."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from planning import KCELECTRA, LLAMA_8B, comments_job, lm_job, plan_of, prices
from stoker.core.codec import dumps
from stoker.core.errors import PlanningError
from stoker.core.plan import Plan
from stoker.core.plan_io import plan_from_json, plan_to_json, read_plan, write_plan

CANDIDATE_KEYS = {
    "rank", "gpu", "num_gpus", "nodes", "run_config", "fits", "fit_probability", "memory", "schedule", "time", "cost",
    "offers", "why",
}  # fmt: skip
MEMORY_KEYS = {
    "low_bytes", "expected_bytes", "high_bytes", "peak_allocated_bytes", "visible_bytes", "terms", "phases", "tiers",
    "source",
}  # fmt: skip
TIME_KEYS = {"step_s", "step_terms", "total_s", "total_terms", "low_s", "high_s", "source"}
COST_KEYS = {
    "total_usd", "low_usd", "high_usd", "lines", "usd_per_hour", "provider", "instance", "region", "price_kind",
    "as_of", "source",
}  # fmt: skip


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(comments_job(gpus=["L4", "H100-SXM5-80GB"]), KCELECTRA, prices=prices(), num_eval_samples=1000)


def test_keys_are_the_published_ones(plan: Plan) -> None:
    data = json.loads(dumps(plan_to_json(plan)))
    assert {"schema_version", "job", "pick", "runner_up", "candidates", "rejected", "offers_snapshot"} <= set(data)
    assert set(data["offers_snapshot"]) == {"date", "age_days"}
    for row in data["candidates"]:
        assert set(row) >= CANDIDATE_KEYS
        assert set(row["memory"]) >= MEMORY_KEYS
        assert set(row["time"]) >= TIME_KEYS
        assert set(row["cost"]) >= COST_KEYS
        assert set(row["memory"]["tiers"]) == {"hbm", "dram", "nvme"}
        assert row["schedule"] is None
    assert all(set(row) >= {"gpu", "num_gpus", "reason", "fix"} for row in data["rejected"])


def test_a_plan_reads_back_without_loss(plan: Plan, tmp_path: Path) -> None:
    file = write_plan(plan, tmp_path / "plan.json")
    assert read_plan(file) == plan
    nothing = plan_of(lm_job(gpus=["L4"], num_gpus=1), LLAMA_8B)
    assert plan_from_json(json.loads(dumps(plan_to_json(nothing)))) == nothing


def test_a_broken_plan_file_is_bad_input(plan: Plan, tmp_path: Path) -> None:
    whole = dumps(plan_to_json(plan))
    missing = {key: value for key, value in json.loads(whole).items() if key != "job"}
    newer = {**json.loads(whole), "schema_version": 99}
    for number, text in enumerate(("", "[]", whole[: len(whole) // 2], dumps(missing), dumps(newer))):
        file = tmp_path / f"{number}.json"
        file.write_text(text, encoding="utf-8")
        with pytest.raises(PlanningError) as error:
            read_plan(file)
        assert error.value.code == "ST328"
        assert error.value.fix
    with pytest.raises(PlanningError):
        read_plan(tmp_path / "absent.json")
    with pytest.raises(PlanningError) as error:
        write_plan(plan, tmp_path / "no" / "folder.json")
    assert error.value.code == "ST329"


@pytest.mark.skipif(os.name == "nt", reason="POSIX files")
def test_writing_a_plan_replaces_nothing_but_an_ordinary_file(plan: Plan, tmp_path: Path) -> None:
    """`--out /dev/stdout` as root put an ordinary file in the device's place; a link was cut from its target."""
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit((tmp_path / "pipe").read_bytes)
        write_plan(plan, tmp_path / "pipe")
        assert json.loads(reading.result(timeout=30))["pick"] == plan.pick
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    (tmp_path / "real.json").write_text("old", encoding="utf-8")
    (tmp_path / "link.json").symlink_to("real.json")
    write_plan(plan, tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink() and read_plan(tmp_path / "real.json").pick == plan.pick
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "pipe", "real.json"]
    for path in (tmp_path, tmp_path / "no" / "p.json", Path("a\0b")):
        with pytest.raises(PlanningError, match="ST329"):
            write_plan(plan, path)
