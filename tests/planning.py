"""Jobs, profiles and plans for the tests of estimators and planner: a call with the few things that a test varies."""

import datetime
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.gpus import find_device
from stoker.catalogue.models.api import arch_from_config
from stoker.catalogue.offers import load_snapshot
from stoker.core.efficiency import Efficiency
from stoker.core.hardware import Cluster
from stoker.core.job import DataSpec, GoalSpec, HardwareSpec, Job, RunPins, TrainSpec, TuneSpec
from stoker.core.ledger import ModelArch
from stoker.core.offer import OffersSnapshot
from stoker.core.plan import Plan, ResolvedModel
from stoker.core.profile import DataProfile, lengths_declared
from stoker.planner.api import make_plan

TODAY = datetime.date(2026, 11, 30)
LLAMA_8B: Mapping[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
KCELECTRA: Mapping[str, Any] = {
    "model_type": "electra",
    "vocab_size": 54343,
    "embedding_size": 768,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}
TINY: Mapping[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 4096,
    "max_position_embeddings": 2048,
}
LABELS = [f"label_{number}" for number in range(10)]


def lm_job(
    *,
    gpus: list[str],
    num_gpus: int | None = None,
    batch: int = 1,
    tokens: int = 2048,
    method: Any = "full",
    run: RunPins | None = None,
    goal: GoalSpec | None = None,
    samples: int = 10_000,
    **hardware: Any,
) -> Job:
    """A causal-LM job whose samples all have `tokens` tokens."""
    return Job(
        model="model",
        task="causal_lm",
        data=DataSpec(num_samples=samples, tokens_mean=tokens, tokens_p99=tokens, tokens_max=tokens),
        tune=TuneSpec(method=method),
        train=TrainSpec(global_batch_size=batch, seq_len=tokens, epochs=1),
        hardware=HardwareSpec(gpus=gpus, num_gpus=num_gpus, **hardware),
        goal=goal or GoalSpec(),
        run=run or RunPins(),
    )


def comments_job(
    *, gpus: list[str], num_gpus: int | None = None, run: RunPins | None = None, goal: GoalSpec | None = None
) -> Job:
    """The KcELECTRA job of a user with 790,000 comments and ten labels."""
    return Job(
        model="beomi/KcELECTRA-base-v2022",
        task="text_classification",
        problem="multi_label",
        data=DataSpec(labels=LABELS, num_samples=790_000, tokens_mean=18.6, tokens_p99=64, tokens_max=458),
        train=TrainSpec(global_batch_size=64, epochs=3),
        hardware=HardwareSpec(gpus=gpus, num_gpus=num_gpus),
        goal=goal or GoalSpec(),
        run=run or RunPins(),
    )


def profile_of(job: Job, *, num_eval_samples: int = 0) -> DataProfile:
    """What the job declares."""
    data = job.data
    assert data.num_samples and data.tokens_mean and data.tokens_p99 and data.tokens_max
    lengths = lengths_declared(data.tokens_mean, data.tokens_p99, data.tokens_max)
    return DataProfile(num_samples=data.num_samples, lengths=lengths, num_eval_samples=num_eval_samples)


def arch_of(job: Job, config: Mapping[str, Any]) -> ModelArch:
    """The model of a test job."""
    return arch_from_config(config, task=job.task, num_labels=job.num_declared_labels, name="test")


def plan_of(
    job: Job,
    config: Mapping[str, Any],
    *,
    prices: OffersSnapshot | None = None,
    efficiency: Efficiency | None = None,
    here: Cluster | None = None,
    num_eval_samples: int = 0,
) -> Plan:
    """The plan of `job` over a model config, without corrections of this machine."""
    return make_plan(
        job,
        profile_of(job, num_eval_samples=num_eval_samples),
        ResolvedModel(name="test", config=config),
        arch_of(job, config),
        prices,
        efficiency or replace(load_efficiency(), corrections=()),
        here=here,
        today=TODAY,
    )


def prices() -> OffersSnapshot:
    """The bundled prices."""
    return load_snapshot()


def one_gpu(name: str) -> Cluster:
    """One device of the table."""
    return Cluster(device=find_device(name), num_gpus=1)
