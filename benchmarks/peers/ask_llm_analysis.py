"""llm-analysis: `LLMAnalysis.training`, its "(weight+op_state+grad+act)_memory_per_gpu"; full tuning only.

The shape goes in as its ModelConfig (its reader of Hugging Face configs drops the MLP's width). 16-bit weights without
masters: `master_weights_dtype_bytes=0` beside two 16-bit moments. The GPU's size is lifted, because it refuses a batch
that it thinks too large instead of saying what the batch needs.
"""

from dataclasses import replace
from typing import Any

from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
from llm_analysis.config import ModelConfig, ParallelismConfig, get_dtype_config_by_name, get_gpu_config_by_name
from serve import NotOffered, answer, need_batch, need_method, need_shape, need_strategy

_RECOMPUTE = {"none": 0, "selective": 1, "full": 2}
_PLAIN_MLP = ("gpt2", "gpt_neox", "falcon", "bloom", "mpt", "opt")


def predict(case: dict[str, Any]) -> float:
    arch = need_shape(case)
    need_method(case, "full")
    strategy = need_strategy(case, "single", "ddp", "zero2", "zero3")
    batch, seq_len = need_batch(case)
    if case["cp"] > 1:
        raise NotOffered("no context parallel")
    if case["recompute"] not in _RECOMPUTE:
        raise NotOffered(f"no recompute {case['recompute']}")
    width = arch["moe_intermediate_size"] or arch["intermediate_size"]
    model = ModelConfig(
        name=case["model"],
        num_layers=arch["num_hidden_layers"],
        n_head=arch["num_attention_heads"],
        hidden_dim=arch["hidden_size"],
        vocab_size=arch["vocab_size"],
        max_seq_len=max(arch["max_position_embeddings"], seq_len),
        num_key_value_heads=arch["num_key_value_heads"],
        ffn_embed_dim=width,
        expansion_ratio=width / arch["hidden_size"],
        model_type=case["config"]["model_type"],
        moe_num_experts=arch["num_experts"] or 1,
        moe_top_k=arch["num_experts_per_tok"] or 1,
    )
    parallel = ParallelismConfig(tp_size=case["tp"], pp_size=case["pp"], dp_size=case["dp"], sp_size=case["tp"])
    gpu = replace(get_gpu_config_by_name("a100-sxm-80gb"), mem_per_GPU_in_GB=1e6)
    analysis = LLMAnalysis(model, gpu, get_dtype_config_by_name("w16a16e16"), parallel)
    bare = case["weights"] != "fp32"
    summary = analysis.training(
        batch_size_per_gpu=max(1, batch // case["pp"]) if case["pp"] > 1 else batch,
        gradient_accumulation_steps=case["pp"] if case["pp"] > 1 else 1,
        seq_len=seq_len,
        activation_recomputation=ActivationRecomputation(_RECOMPUTE[case["recompute"]]),
        ds_zero=DSZeRO({"single": 0, "ddp": 0, "zero2": 2, "zero3": 3}[strategy]),
        master_weights_dtype_bytes=0 if bare else 4,
        other_op_bytes=4 if bare else None,
        flash_attn=case["attention"] == "flash",
        mlp_gated_linear_units=case["config"]["model_type"] not in _PLAIN_MLP,
    )
    gradients = 2 * case["params"] / (case["tp"] * case["pp"]) if bare else 0.0  # counted in the master's bytes there
    return summary["(weight+op_state+grad+act)_memory_per_gpu"] + gradients


if __name__ == "__main__":
    answer(predict, ("llm-analysis", "transformers"))
