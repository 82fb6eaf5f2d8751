"""Golden plan: the KcELECTRA job over four GPU types and 1 to 8 GPUs has the structure and the lessons of the field.

More GPUs are never linear on tiny steps, a faster GPU is faster, every sum sums, the single GPU is always shown, counts
that do not divide the batch are named with the nearest batch, and the same inputs give the same plan.
"""

import pytest

from planning import KCELECTRA, comments_job, plan_of, prices
from stoker.core.job import GoalSpec
from stoker.core.plan import Candidate, Plan
from stoker.planner.rank import trusted_usd

GPUS = ["L4", "A100-SXM4-40GB", "H100-SXM5-80GB", "H200-SXM-141GB"]


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_of(comments_job(gpus=GPUS), KCELECTRA, prices=prices(), num_eval_samples=8_000)


def at(plan: Plan, gpu: str, num_gpus: int) -> Candidate:
    return next(c for c in plan.candidates if c.cluster.device.name == gpu and c.cluster.num_gpus == num_gpus)


def test_one_candidate_a_cluster_and_the_rest_rejected_with_the_nearest_batch(plan: Plan) -> None:
    assert {(c.cluster.device.name, c.cluster.num_gpus) for c in plan.candidates} == {
        (gpu, count) for gpu in GPUS for count in (1, 2, 4, 8)
    }
    assert {(r.gpu, r.num_gpus) for r in plan.rejected} == {(gpu, count) for gpu in GPUS for count in (3, 5, 6, 7)}
    three = next(r for r in plan.rejected if r.num_gpus == 3)
    assert three.code == "ST321"
    assert "63" in three.fix


def test_every_candidate_fits_with_sums_and_intervals_that_hold(plan: Plan) -> None:
    for candidate in plan.candidates:
        memory, time = candidate.memory, candidate.time
        assert candidate.fits
        assert sum(memory.terms.values()) == memory.expected_bytes
        assert sum(time.step_terms.values()) == pytest.approx(time.step_s)
        assert sum(time.total_terms.values()) == pytest.approx(time.total_s)
        assert time.low_s < time.total_s < time.high_s
        assert time.num_steps == 3 * 12_344  # ceil(790,000 / 64) an epoch
        config = candidate.run_config
        ranks = config.parallel.data_parallel
        assert config.micro_batch_size * ranks * config.gradient_accumulation_steps == 64
        assert candidate.cost is not None
        assert sum(candidate.cost.lines.values()) == pytest.approx(candidate.cost.total_usd)


def test_more_gpus_are_never_linear_on_tiny_steps(plan: Plan) -> None:
    for gpu in GPUS:
        single = at(plan, gpu, 1)
        for count in (2, 4, 8):
            many = at(plan, gpu, count)
            assert single.time.total_s / many.time.total_s < 0.9 * count
        assert single.time.step_s / at(plan, gpu, 8).time.step_s < 4.0


def test_a_faster_gpu_is_never_slower_and_the_large_ones_wait_for_the_host(plan: Plan) -> None:
    seconds = [at(plan, gpu, 1).time.step_s for gpu in GPUS]
    assert seconds == pytest.approx(sorted(seconds, reverse=True))
    terms = at(plan, "H200-SXM-141GB", 1).time.step_terms
    assert terms["host_overhead"] > terms["compute"]


def test_a_run_is_more_than_its_steps(plan: Plan) -> None:
    terms = at(plan, "H100-SXM5-80GB", 1).time.total_terms
    assert {"boot", "download", "load", "tokenise", "steps", "evaluation", "saves"} <= set(terms)
    assert all(terms[name] > 0 for name in ("boot", "download", "load", "tokenise", "evaluation", "saves"))


def test_the_pick_is_the_cheapest_or_the_fastest_as_asked(plan: Plan) -> None:
    assert plan.picked is not None and plan.picked.cost is not None
    assert trusted_usd(plan.picked) == min(trusted_usd(c) for c in plan.candidates)
    assert plan.picked.rank == 1
    assert plan.runner_up not in (None, plan.pick)
    fast = plan_of(comments_job(gpus=GPUS, goal=GoalSpec(minimise="time")), KCELECTRA, prices=prices())
    assert fast.picked is not None
    assert fast.picked.time.total_s == pytest.approx(min(c.time.total_s for c in fast.candidates))
    for sentence in (plan.summary, plan.smaller_gpu, plan.candidates[0].why, plan.candidates[1].why):
        assert sentence


def test_the_same_inputs_give_the_same_plan(plan: Plan) -> None:
    again = plan_of(comments_job(gpus=GPUS), KCELECTRA, prices=prices(), num_eval_samples=8_000)
    assert again == plan
