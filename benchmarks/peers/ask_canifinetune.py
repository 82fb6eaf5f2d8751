"""canifinetune: `estimator.memory.estimate` with an override of the exact shape, no network.

It states that it predicts the process's reserved peak and reports a safety margin apart, so the margin is taken off;
for allocated readings its allowance for context, fragmentation and workspaces is taken off too.
"""

from typing import Any

from canifinetune.estimator.memory import EstimateRequest, estimate
from serve import NotOffered, answer, need_batch, need_method, need_recompute, need_shape, need_strategy

_QUANT = {"none": "nf4", "nf4": "nf4", "nf4-dq": "nf4_double_quant", "int4": "int4", "int8": "int8"}
_SCOPES = {"query_value": "conservative", "attention": "attention", "all_linear": "all_linear"}


def predict(case: dict[str, Any]) -> float:
    arch = need_shape(case)
    method = need_method(case, "full", "lora", "qlora")
    need_strategy(case, "single")
    batch, seq_len = need_batch(case)
    need_recompute(case)
    if case["quant"] not in _QUANT:
        raise NotOffered(f"no quantisation {case['quant']}")
    request = EstimateRequest(
        model_id=case["model"],
        method=method,
        seq_len=seq_len,
        micro_batch_size=batch,
        base_dtype=case["weights"] if method == "full" else case["compute"],
        quantization=_QUANT[case["quant"]],
        lora_rank=case["lora_rank"] or 16,
        lora_target_scope=_SCOPES[case["lora_targets"] or "attention"],
        optimizer="adamw_torch_fused",
        gradient_checkpointing=case["recompute"] == "full",
        attention_implementation="eager" if case["attention"] == "eager" else "sdpa",
        gpu_vram_gb=case["gpu_mem_gb"],
        use_network=False,
        override={
            **{key: value for key, value in arch.items() if value is not None and key != "num_experts"},
            "family": case["config"]["model_type"],
            "total_params": case["params"],
            "num_local_experts": arch["num_experts"] or 1,
            "num_experts_per_tok": arch["num_experts_per_tok"] or 1,
        },
    )
    memory = estimate(request).memory
    less = memory.safety_margin_gb + (memory.cuda_overhead_gb if case["quantity"] == "allocated" else 0.0)
    return (memory.total_estimated_gb - less) * 2**30


if __name__ == "__main__":
    answer(predict, ("canifinetune",))
