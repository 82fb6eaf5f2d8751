"""Proves `stoker bench`: real steps by the training loop, the fullest batch for memory and mean ones for time, nothing
left but the correction, which the next plan applies and calls calibrated. No test here looks at how long a step takes.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import yaml
from tiny_jobs import plan_here, sentiment_job, sums_job, write_sentiment, write_sums

from stoker.core.record import StepLine
from stoker.engine.assemble import prepare_parts
from stoker.engine.batches import StepPlan
from stoker.engine.bench import WARM_UP, bench, fullest_step, mean_steps
from stoker.engine.progress import Silent
from stoker.estimators.calibrate import corrections, typical_step_s
from stoker.techniques.packing import packing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sentiment(tmp_path_factory.mktemp("bench"))


def step_plan(folder: Path) -> tuple[StepPlan, int]:
    plan = plan_here(folder, sentiment_job(folder), "steps.yaml")
    train = prepare_parts(plan, Silent()).train
    steps = StepPlan(train, packing("bucketed"), seed=0, global_batch_size=16, micro_batch_size=4)
    return steps, len(train) // 16


def test_the_second_step_is_the_fullest_that_the_data_can_give(folder: Path) -> None:
    steps, _total = step_plan(folder)
    longest = sorted(steps.source.lengths)[-1]
    batch = fullest_step(steps)
    assert [micro.padded_tokens for micro in batch.micro_batches] == [4 * longest] * 2


def test_timed_steps_are_those_of_mean_length(folder: Path) -> None:
    steps, total = step_plan(folder)
    tokens = [steps.batch(step).padded_tokens for step in range(total)]
    mean = sum(tokens) / len(tokens)
    chosen = mean_steps(steps, total, 3)
    worst_chosen = max(abs(tokens[step] - mean) for step in chosen)
    assert all(abs(tokens[step] - mean) >= worst_chosen for step in range(total) if step not in chosen)
    assert len(mean_steps(steps, total, 100)) == 100  # a short run's steps are repeated


def test_a_bench_measures_and_leaves_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    plan = plan_here(folder, sentiment_job(folder), "bench.yaml")
    before = sorted(path.name for path in folder.iterdir())
    record = bench(plan, steps=3, progress=Silent())
    assert [line.step for line in record.steps] == [1, 2, 3, 4, 5]
    assert all(line.step_s > 0.0 for line in record.steps)
    assert typical_step_s(record) == median(line.step_s for line in record.steps[WARM_UP:])
    assert record.steps[1].padded_tokens > max(line.padded_tokens for line in record.steps[WARM_UP:]) / 2
    assert sorted(path.name for path in folder.iterdir()) == before
    assert list(tmp_path.iterdir()) == []
    (found,) = corrections([record])
    assert found.key.stack.startswith("torch-") and found.key.attention == "sdpa" and found.num_runs == 1
    assert found.start_s is not None and found.start_s > 0.0


def test_weights_that_are_not_here_start_random(tmp_path: Path) -> None:
    """A causal model: what is measured hangs on shapes, not on values."""
    write_sums(tmp_path)
    plan = plan_here(tmp_path, sums_job(tmp_path))
    plan = replace(plan, model=replace(plan.model, folder=None, random_weights=False))
    assert len(bench(plan, steps=3, progress=Silent()).steps) == 5


def test_the_correction_of_a_bench_is_exact_for_its_own_steps(folder: Path) -> None:
    plan = plan_here(folder, sentiment_job(folder), "exact.yaml")
    record = bench(plan, steps=3, progress=Silent())
    slow = [replace(line, step_s=2.0 * plan.candidates[0].time.step_s) for line in record.steps]
    (found,) = corrections([replace(record, steps=tuple(slow))])
    assert found.time_factor == pytest.approx(2.0 * plan.candidates[0].time.correction_factor)
    outlier: StepLine = replace(slow[-1], step_s=100.0)
    (again,) = corrections([replace(record, steps=(*slow[:-1], outlier))])
    assert again.time_factor == pytest.approx(found.time_factor)  # the median: one disturbed step does not count


def test_the_next_plan_uses_what_the_command_learned(folder: Path) -> None:
    job = folder / "command.yaml"
    job.write_text(yaml.safe_dump({**sentiment_job(folder), "hardware": {"here": True}}), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder / "cache"), "STOKER_LANG": "en"}

    def stoker(*arguments: str) -> dict[str, object]:
        done = subprocess.run(
            [sys.executable, "-m", "stoker", *arguments, "--json"],
            capture_output=True, text=True, cwd=folder, env=environment, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    measured = stoker("bench", str(job), "--steps", "3")
    stored = Path(str(measured["stored"]))
    assert stored.is_file() and stored.is_relative_to(folder / "cache")
    candidate = stoker("plan", str(job))["candidates"][0]  # type: ignore[index]
    step = next(row for row in measured["compared"] if row["name"] == "step")  # type: ignore[attr-defined]
    assert candidate["time"]["source"] == candidate["memory"]["source"] == "calibrated"
    assert candidate["time"]["step_s"] == pytest.approx(step["measured"], rel=0.01)
    assert len(json.loads(stored.read_text(encoding="utf-8"))["corrections"]) == 1
