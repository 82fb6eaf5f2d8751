"""The search takes short cuts; each is held against the whole scan: what it finds is what trying everything finds."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from planning import KCELECTRA, LLAMA_8B, TINY, comments_job, lm_job
from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.models.api import arch_from_config
from stoker.core.hardware import Cluster
from stoker.core.job import Job
from stoker.core.profile import DataProfile, LengthDistribution, lengths_constant, lengths_declared
from stoker.core.run_config import RunConfig
from stoker.planner.evaluate import FIT_PROBABILITY, Evaluator
from stoker.planner.space import clusters, run_configs

GPUS = ["T4", "L4", "A100-SXM4-40GB", "H100-SXM5-80GB"]
SHORT = lengths_constant(24)
SPREAD = lengths_declared(420, 1900, 4096)


def evaluator_of(job: Job, config: Mapping[str, Any], lengths: LengthDistribution) -> Evaluator:
    profile = DataProfile(num_samples=50_000, lengths=lengths, num_eval_samples=500)
    arch = arch_from_config(config, task=job.task, name="model")
    return Evaluator(job=job, profile=profile, arch=arch, efficiency=replace(load_efficiency(), corrections=()))


def fits(evaluator: Evaluator, cluster: Cluster, config: RunConfig) -> bool:
    return evaluator.memory(cluster, config).fit_probability >= FIT_PROBABILITY


def job_of(config: Mapping[str, Any], method: Any, batch: int) -> Job:
    if config is not KCELECTRA:
        return lm_job(gpus=GPUS, max_gpus=8, batch=batch, method=method)
    job = comments_job(gpus=GPUS)
    train, tune = replace(job.train, global_batch_size=batch), replace(job.tune, method=method)
    return replace(job, train=train, tune=tune, hardware=replace(job.hardware, max_gpus=8))


CASES = [
    *itertools.product((TINY, LLAMA_8B), ("full", "lora", "qlora"), (48, 96, 1024), (SHORT, SPREAD)),
    *itertools.product((KCELECTRA,), ("full", "lora"), (64, 1000), (SHORT, SPREAD)),
]


@pytest.mark.parametrize(("config", "method", "batch", "lengths"), CASES)
def test_bisection_finds_the_sizes_that_a_full_scan_finds(
    config: Mapping[str, Any], method: str, batch: int, lengths: LengthDistribution
) -> None:
    """The largest three micro-batches that fit, for every strategy, recompute and loss on one to eight GPUs."""
    job = job_of(config, method, batch)
    evaluator = evaluator_of(job, config, lengths)
    borders = 0
    for cluster in clusters(job, None):
        for family in run_configs(job, cluster, evaluator.arch):
            scanned = [one for one in family if fits(evaluator, cluster, one)]
            found = [one for one, _memory in evaluator._fitting_sizes(cluster, family)]
            assert found == scanned[:3], f"{cluster.label} {family[0].label}"
            borders += 0 < len(scanned) < len(family)
    assert config is not LLAMA_8B or batch < 1024 or borders > 0  # a border inside the family, so bisection has work


def test_state_alone_rejects_only_what_no_size_would_fit() -> None:
    """Llama 3.1 8B in full holds 14 bytes a parameter beside gradients: 112 GB, and 28 GB sharded four ways."""
    job = lm_job(gpus=["A100-SXM4-40GB"], max_gpus=4, batch=64)
    evaluator = evaluator_of(job, LLAMA_8B, SPREAD)
    skipped = {
        (cluster.num_gpus, family[0].parallel.dp_shard)
        for cluster in clusters(job, None)
        for family in run_configs(job, cluster, evaluator.arch)
        if evaluator._state_is_too_large(cluster, family[0])
    }
    assert skipped == {(1, 1), (2, 1), (2, 2), (4, 1)}  # three GPUs do not divide a batch of 64


@pytest.mark.parametrize(("config", "method", "batch", "lengths"), CASES)
def test_the_choice_is_as_fast_as_trying_every_size_that_fits(
    config: Mapping[str, Any], method: str, batch: int, lengths: LengthDistribution
) -> None:
    """Not only the largest sizes: a large micro-batch pads to its longest sample, so a small one may win.

    Within 4 %: ties within 2 % go to the plainer one, and recompute is not tried where all fits at once without it.
    """
    job = job_of(config, method, batch)
    evaluator = evaluator_of(job, config, lengths)
    for cluster in clusters(job, None)[:8]:
        families = run_configs(job, cluster, evaluator.arch)
        fitting = [one for family in families for one in family if fits(evaluator, cluster, one)]
        chosen = evaluator.candidate(cluster)
        if not fitting or chosen is None:
            continue
        fastest = min(evaluator.time(cluster, one).step_s for one in fitting)
        assert chosen.time.step_s <= fastest * 1.04, f"{cluster.label} {chosen.run_config.label}"
