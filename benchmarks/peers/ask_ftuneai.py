"""ftuneai: `core.memory.MemoryEstimator` over a ModelSpec with the exact sizes (its own hub look-up estimates them).

Its length limit gets the row's length where that is longer, so that it refuses nothing for that alone.
"""

from typing import Any

from ftuneai.core.memory import MemoryEstimator
from ftuneai.core.models import (
    FineTuneMethod,
    LoRATarget,
    ModelSpec,
    OptimizerType,
    Quantization,
    ShardingStrategy,
    TrainingConfig,
)
from serve import NotOffered, answer, need_batch, need_method, need_recompute, need_shape, need_strategy, one_dimension

_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_QUANT = {"none": "none", "nf4": "4bit", "nf4-dq": "4bit", "int4": "4bit", "int8": "8bit"}
_TARGETS = {"query_value": "attention", "attention": "attention_all", "all_linear": "all_linear"}
_SHARDING = {"single": "none", "ddp": "none", "zero2": "zero_2", "zero3": "fsdp"}


def predict(case: dict[str, Any]) -> float:
    arch = need_shape(case)
    method = need_method(case, "full", "lora", "qlora")
    strategy = need_strategy(case, *_SHARDING)
    one_dimension(case)
    batch, seq_len = need_batch(case)
    need_recompute(case)
    if case["quant"] not in _QUANT:
        raise NotOffered(f"no quantisation {case['quant']}")
    experts = arch["num_experts"]
    spec = ModelSpec(
        name=case["model"],
        parameters=case["params"],
        hidden_size=arch["hidden_size"],
        num_layers=arch["num_hidden_layers"],
        num_attention_heads=arch["num_attention_heads"],
        num_kv_heads=arch["num_key_value_heads"],
        intermediate_size=arch["intermediate_size"],
        vocab_size=arch["vocab_size"],
        max_seq_length=max(arch["max_position_embeddings"], seq_len),
        default_dtype=_DTYPES[case["weights"]],
        is_moe=experts is not None,
        num_experts=experts,
        num_active_experts=arch["num_experts_per_tok"],
    )
    config = TrainingConfig(
        model=case["model"],
        method=FineTuneMethod(method),
        quantization=Quantization(_QUANT[case["quant"]]),
        batch_size=batch,
        seq_length=seq_len,
        gradient_checkpointing=case["recompute"] == "full",
        optimizer=OptimizerType.ADAMW,
        lora_rank=case["lora_rank"] or 16,
        lora_target=LoRATarget(_TARGETS[case["lora_targets"] or "query_value"]),
        flash_attention=case["attention"] == "flash",
        sharding=ShardingStrategy(_SHARDING[strategy]),
        num_gpus=case["num_gpus"],
    )
    return MemoryEstimator(spec, config).estimate().total_gb * 2**30


if __name__ == "__main__":
    answer(predict, ("ftuneai",))
