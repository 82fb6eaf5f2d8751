"""Golden memory: the issue's figures and cases 1, 3, 4, 6 and 8, each derived beside its assertion."""

from dataclasses import replace

import pytest

from planning import KCELECTRA, LLAMA_8B, arch_of, comments_job, lm_job, plan_of
from stoker.core.job import ParallelSpec, RunPins
from stoker.core.units import GB, GIB

PINNED = RunPins(precision="bf16", recompute="full", loss="eager", micro_batch_size=1, parallel="auto")


def test_llama_8b_state_is_sixteen_bytes_a_parameter_and_the_peak_is_between_132_and_136_gb() -> None:
    job = lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, run=PINNED)
    memory = plan_of(job, LLAMA_8B).candidates[0].memory
    state = memory.terms["params"] + memory.terms["grads"] + memory.terms["optimizer_states"]
    assert state == pytest.approx(16 * 8_030_261_248, rel=1e-6)
    assert 132 * GB <= memory.peak_allocated_bytes + memory.terms["framework"] <= 136 * GB
    assert sum(memory.terms.values()) == memory.expected_bytes
    assert memory.low_bytes < memory.expected_bytes < memory.high_bytes


def test_kcelectra_with_ten_labels_has_its_exact_parameter_count_and_state() -> None:
    job = comments_job(gpus=["L4"], num_gpus=1)
    assert arch_of(job, KCELECTRA).num_params == 127_784_458
    memory = plan_of(job, KCELECTRA).candidates[0].memory
    assert memory.terms["params"] + memory.terms["grads"] == pytest.approx(8 * 127_784_458, rel=1e-6)
    assert memory.terms["optimizer_states"] == pytest.approx(8 * 127_784_458, rel=1e-6)


def test_case_1_logits_line() -> None:
    """8,192 x 128,256: bf16 1.96 GiB + fp32 copy 3.91 + fp32 gradient 3.91 are in it; chunks keep at most a chunk."""
    eager = (
        plan_of(lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, tokens=8192, run=PINNED), LLAMA_8B)
        .candidates[0]
        .memory.terms["logits"]
    )
    elements = 8192 * 128_256
    assert 10 * elements <= eager <= 16 * elements
    assert 2 * elements / GIB == pytest.approx(1.957, abs=0.01)
    doubled = (
        plan_of(lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, tokens=4096, run=PINNED), LLAMA_8B)
        .candidates[0]
        .memory.terms["logits"]
    )
    assert eager == pytest.approx(2 * doubled, rel=1e-9)
    chunked = RunPins(precision="bf16", recompute="full", loss="chunked", micro_batch_size=1)
    small = (
        plan_of(lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, tokens=8192, run=chunked), LLAMA_8B)
        .candidates[0]
        .memory.terms["logits"]
    )
    assert small == pytest.approx(10 * 1024 * 128_256, rel=1e-9)  # fp32 part: 2 x 4 bytes, 0.98 GiB


def test_case_3_lora_saves_a_fixed_amount() -> None:
    """State saved by LoRA: 14 B a base parameter less 16 B an adapter parameter, the same at 512 and 8,192 tokens."""
    saved = []
    for tokens in (512, 8192):
        state = {}
        for method in ("full", "lora"):
            run = RunPins(precision="bf16", recompute="none", loss="chunked", micro_batch_size=1)
            plan = plan_of(lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, tokens=tokens, method=method, run=run), LLAMA_8B)
            terms = plan.candidates[0].memory.terms
            state[method] = terms["params"] + terms["grads"] + terms["optimizer_states"]
            if method == "lora":
                adapters = plan.num_trainable_params
        saved.append(state["full"] - state["lora"])
        assert saved[-1] == pytest.approx(14 * 8_030_261_248 - 16 * adapters, rel=1e-6)
    assert saved[0] == pytest.approx(saved[1], rel=1e-9)


def test_case_4_optimizer_state_appears_with_the_first_step() -> None:
    memory = plan_of(lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, run=PINNED), LLAMA_8B).candidates[0].memory
    loaded, stepped = memory.phases["load"], memory.phases["optimizer"]
    assert stepped - loaded >= 12 * 8_030_261_248  # masters and both moments


def test_case_6_all_experts_are_held() -> None:
    """30,532.1 M parameters at 2 bytes: 61.1 GB of weights, whatever is active."""
    moe = {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "moe_intermediate_size": 768,
        "intermediate_size": 6144,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": False,
    }
    run = RunPins(precision="bf16", recompute="full", micro_batch_size=1)
    job = lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, method="lora", run=run)
    arch = arch_of(job, moe)
    assert arch.num_params == pytest.approx(30_532.123e6, rel=1e-5)
    assert arch.active_params == pytest.approx(3.35e9, rel=0.02)
    plan = plan_of(job, moe)
    adapters = plan.num_trainable_params
    weights = plan.candidates[0].memory.terms["params"] - 4 * adapters
    assert weights / GB == pytest.approx(61.06, rel=0.001)


def test_case_8_the_longest_batch_sets_the_peak() -> None:
    """Four samples of 458 tokens are what is planned for, although the mean sample has 18.6."""
    run = RunPins(micro_batch_size=4, recompute="none")
    job = comments_job(gpus=["L4"], num_gpus=1, run=run)
    memory = plan_of(job, KCELECTRA).candidates[0].memory
    short = comments_job(gpus=["L4"], num_gpus=1, run=run)
    even = replace(short, data=replace(short.data, tokens_mean=18.6, tokens_p99=18.6, tokens_max=18.6))
    assert memory.terms["activations"] > 20 * plan_of(even, KCELECTRA).candidates[0].memory.terms["activations"]


def test_case_8_a_thousand_short_samples_and_one_long_are_planned_as_four_long_ones() -> None:
    """1,000 samples of 128 tokens and one of 8,192, batch 4: the peak is that of 4 x 8,192 tokens."""
    run = RunPins(precision="bf16", recompute="full", loss="chunked", micro_batch_size=4)
    long = lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, batch=4, tokens=8192, run=run)
    data = replace(long.data, num_samples=1001, tokens_mean=136.06, tokens_p99=128, tokens_max=8192)
    rare = plan_of(replace(long, data=data), LLAMA_8B).candidates[0].memory
    even = plan_of(long, LLAMA_8B).candidates[0].memory
    # 0.3 %: where a batch is padded, its mask rules out the kernel that knows grouped heads
    assert rare.peak_allocated_bytes == pytest.approx(even.peak_allocated_bytes, rel=0.005)
    assert rare.expected_bytes > even.expected_bytes and rare.high_bytes > even.high_bytes  # segments of other lengths


def test_lora_needs_less_than_full_and_more_gpus_need_less_each() -> None:
    run = RunPins(precision="bf16", recompute="full", micro_batch_size=1)
    full = plan_of(lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, run=run), LLAMA_8B).candidates[0].memory
    lora = plan_of(lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, run=run, method="lora"), LLAMA_8B).candidates[0].memory
    assert lora.expected_bytes < 0.25 * full.expected_bytes
    sharded = replace(run, parallel=ParallelSpec(dp_shard=8))
    eight = plan_of(lm_job(gpus=["H200-SXM-141GB"], num_gpus=8, batch=8, run=sharded), LLAMA_8B).candidates[0].memory
    assert eight.expected_bytes < 0.35 * full.expected_bytes
    assert eight.terms["optimizer_states"] == pytest.approx(full.terms["optimizer_states"] / 8, rel=1e-6)


@pytest.mark.parametrize(
    ("hidden", "layers", "heads", "kv_heads", "inner", "vocab", "tied", "kernel", "batch", "tokens", "mib"),
    [
        (2048, 22, 32, 4, 5632, 32000, False, "sdpa", 2, 1024, 3288),
        (2048, 22, 32, 4, 5632, 32000, False, "eager", 2, 2048, 6616),
        (2048, 24, 32, 32, 8192, 49152, True, "sdpa", 4, 1024, 6529),
        (2048, 24, 32, 32, 8192, 49152, True, "eager", 1, 2048, 5706),
        (960, 32, 15, 5, 2560, 49152, True, "sdpa", 1, 4096, 3755),
        (576, 30, 9, 3, 1536, 49152, True, "sdpa", 2, 512, 1027),
    ],
)
def test_peaks_measured_on_a_t4_are_met(
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    inner: int,
    vocab: int,
    tied: bool,
    kernel: str,
    batch: int,
    tokens: int,
    mib: int,
) -> None:
    """Peak allocated MiB of LoRA (rank 32, attention) with recompute: fitcheck-llm 0.3.1 on a T4, 2026-09-21.

    Its embeddings are fp16, ours fp32 under autocast, so a few per cent more is right. Within 13 %.
    """
    config = {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": inner,
        "vocab_size": vocab,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": tied,
    }
    run = RunPins(precision="fp16_amp", recompute="full", loss="eager", micro_batch_size=batch, packing="none")
    job = lm_job(gpus=["T4"], num_gpus=1, batch=batch, tokens=tokens, method="lora", run=replace(run, attention=kernel))
    job = replace(job, tune=replace(job.tune, rank=32, targets="attention"))
    memory = plan_of(job, config).candidates[0].memory
    assert memory.peak_allocated_bytes / 2**20 == pytest.approx(mib, rel=0.13)
