"""Predicted beside measured step time of the catalogue's anchors: what the efficiency table is fitted and judged by."""

from math import exp, log
from statistics import median

from stoker.catalogue.anchors import Anchor
from stoker.catalogue.gpus import find_device
from stoker.catalogue.models.api import arch_from_config
from stoker.core.efficiency import Efficiency
from stoker.core.hardware import Cluster
from stoker.core.job import DataSpec, Job, TrainSpec, TuneSpec
from stoker.core.ledger import ModelArch
from stoker.core.profile import lengths_constant
from stoker.estimators.ledger_sums import sum_ledger
from stoker.estimators.scenario import Scenario
from stoker.estimators.step_time import StepTime, estimate_step
from stoker.techniques.passes import apply_passes


def predict_anchor(anchor: Anchor, efficiency: Efficiency, arch: ModelArch | None = None) -> StepTime:
    """The step that the estimators predict for `anchor`, without corrections. `arch`: built once by the caller."""
    model = arch or anchor_arch(anchor)
    job = Job(
        model=dict(anchor.config),
        task=anchor.task,
        data=DataSpec(num_samples=1, tokens_mean=anchor.seq_len, labels="label"),
        tune=TuneSpec(method=anchor.method, rank=32),
        train=TrainSpec(global_batch_size=anchor.run_config.global_batch_size, seq_len=anchor.seq_len),
    )
    ledger = apply_passes(model, job, anchor.run_config)
    return estimate_step(
        Scenario(
            task=anchor.task,
            optimizer="adamw",
            ledger=ledger,
            sums=sum_ledger(ledger),
            config=anchor.run_config,
            cluster=Cluster(device=find_device(anchor.gpu), num_gpus=anchor.num_gpus),
            lengths=lengths_constant(anchor.seq_len),
            efficiency=efficiency,
        )
    )


def anchor_arch(anchor: Anchor) -> ModelArch:
    """The model of an anchor."""
    return arch_from_config(anchor.config, task=anchor.task, num_labels=2, name=anchor.name)


def typical_ratio(ratios: list[float]) -> float:
    """Median of ratios in the logarithm."""
    return exp(median(log(ratio) for ratio in ratios))
