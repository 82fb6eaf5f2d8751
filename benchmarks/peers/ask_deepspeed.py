"""DeepSpeed's `estimate_zero2_...` and `estimate_zero3_model_states_mem_needs`: model states only, full tuning.

A single GPU is ZeRO-3 on one GPU (18 bytes a parameter; its ZeRO-2 says 20). The functions that read a model build it
for real; their "cold" form takes the two counts instead: all parameters, and the largest layer's (the vocabulary).
"""

from typing import Any

from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs
from serve import NotOffered, answer, need_method, need_shape, need_strategy


def predict(case: dict[str, Any]) -> float:
    need_method(case, "full")
    strategy = need_strategy(case, "single", "zero2", "zero3", "zero3_offload")
    arch = need_shape(case)
    if case["tp"] * case["pp"] * case["cp"] > 1:
        raise NotOffered("ZeRO over data parallel ranks only")
    gpus = case["num_gpus"]  # Ulysses shards states over all ranks
    per_node, nodes = min(gpus, 8), max(1, gpus // 8)
    if strategy == "zero2":
        return float(estimate_zero2_model_states_mem_needs(case["params"], per_node, nodes, cpu_offload=False)[1])
    offload = strategy == "zero3_offload"
    largest = arch["vocab_size"] * arch["hidden_size"]
    return float(
        estimate_zero3_model_states_mem_needs(
            case["params"], largest, per_node, nodes, cpu_offload=offload, cpu_offload_params=offload
        )[1]
    )


if __name__ == "__main__":
    answer(predict, ("deepspeed", "torch"))
