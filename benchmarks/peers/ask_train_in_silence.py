"""train-in-silence: `planner.estimator.ResourceEstimator`, its `required_vram_gb`.

It asks for that much over all GPUs of an offer together, so a GPU's share is the nth part where anything is sharded.
"""

from typing import Any

from serve import NotOffered, answer, need_batch, need_method, need_shape, need_strategy
from tis.planner.estimator import ResourceEstimator
from tis.planner.models import ModelSpec, TrainingSpec, Workload


def predict(case: dict[str, Any]) -> float:
    arch = need_shape(case)
    method = need_method(case, "full", "lora", "qlora")
    strategy = need_strategy(case, "single", "ddp", "zero2", "zero3", "layers")
    batch, seq_len = need_batch(case)
    if case["quant"] == "other":
        raise NotOffered("no such quantisation")
    model = ModelSpec(
        name=case["model"],
        params=case["params"],
        num_layers=arch["num_hidden_layers"],
        num_heads=arch["num_attention_heads"],
        num_kv_heads=arch["num_key_value_heads"],
        hidden_dim=arch["hidden_size"],
        vocab_size=arch["vocab_size"],
        num_experts=arch["num_experts"] or 0,
        active_experts=arch["num_experts_per_tok"] or 0,
    )
    training = TrainingSpec(method=method, precision=case["weights"], batch_size=batch, seq_len=seq_len)
    if case["quant"] == "int8":
        training = TrainingSpec(method="lora", precision="int8", batch_size=batch, seq_len=seq_len)
    needed = ResourceEstimator().estimate(Workload(model=model, training=training)).required_vram_gb
    shared = 1 if strategy in ("single", "ddp") else case["num_gpus"]
    return needed * 2**30 / shared


if __name__ == "__main__":
    answer(predict, ("train-in-silence",))
