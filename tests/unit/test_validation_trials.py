"""Words of published tables become the runs they describe: one row of each spelling, its translation stated by hand.

The expectations are facts of the sources (their READMEs, recipes and loss code), not outputs of this code.
"""

from dataclasses import replace
from typing import Any

import pytest

from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.stacks import all_stacks, find_stack, unknown_stack
from stoker.core.measurement import Measurement
from stoker.estimators.memory import estimate_memory
from stoker.validation.notes import QKV
from stoker.validation.predict import Prediction, predict
from stoker.validation.trial import NotScored, Trial, build_trial

EFFICIENCY = replace(load_efficiency(), corrections=())
LLAMA = "llama-2-7b"
HF = "some blog"  # a source that nobody described


def measured(source: str, **columns: Any) -> Measurement:
    values: dict[str, Any] = {
        "table": "table",
        "model": LLAMA,
        "metric": "peak_mem_gb",
        "value": 10.0,
        "unit": "GiB",
        "method": "full",
        "precision": "bf16",
        "gpu": "A100-80GB-SXM",
        "num_gpus": 1,
        "strategy": "single",
        "micro_batch_size": 1,
        "seq_len": 512,
        **columns,
    }
    return Measurement(source=source, **values)


def trial_of(source: str, **columns: Any) -> Trial:
    trial = build_trial(measured(source, **columns), EFFICIENCY)
    assert isinstance(trial, Trial), trial
    return trial


def reason_of(source: str, **columns: Any) -> str:
    trial = build_trial(measured(source, **columns), EFFICIENCY)
    assert isinstance(trial, NotScored)
    return trial.reason


@pytest.mark.parametrize(
    ("source", "method", "precision", "expected"),
    [
        ("litgpt", "lora", "bf16-true", "bf16_pure"),
        ("litgpt", "full", "bf16-mixed", "bf16_amp"),
        ("litgpt", "qlora", "bf16-true+bnb.nf4-dq", "bf16_pure"),
        ("fitcheck-llm 0.3.1 sdist", "qlora", "fp16 nf4", "fp16_amp"),
        ("fitcheck-llm 0.3.1 sdist", "lora", "fp16 none", "fp16_amp"),
        ("llm-foundry", "full", "amp_bf16", "bf16_amp"),
        ("llm-foundry", "full", "bf16/PURE (bf16 params+grads+reduce)", "bf16_pure"),
        ("ms-swift benchmark", "full", "bf16", "bf16_pure"),
        ("NVIDIA DeepLearningExamples", "full", "amp_fp16", "fp16_amp"),
        ("NVIDIA DeepLearningExamples", "full", "FP32", "fp32"),
        ("prime-rl CI benchmarks", "full (sft trainer)", "bf16 compute (fp32 master when full)", "bf16_amp"),
        ("prime-rl CI benchmarks", "lora (rl trainer)", "bf16 compute (fp32 master when full)", "bf16_pure"),
        ("torchtitan", "full (pretrain)", "compile bf16", "bf16_amp"),
        ("Megatron-Bridge perf summary", "full (pretrain)", "BF16", "bf16"),
        ("RoundPipe / aiDAPTIV", "full", "bf16/fp32 master", "bf16"),
        (HF, "full", "bfloat16", "bf16_pure"),  # the name of a torch dtype: weights as loaded
        (HF, "full", "bf16", "bf16_pure"),  # a trainer's flag; fp32 weights of 7 B and their state would not fit
        (HF, "full", "bf16 (torch_dtype=bfloat16)", "bf16_pure"),
        (HF, "full", "fp16 O1 apex", "fp16_amp"),
        (HF, "full", "16-mixed", "fp16_amp"),
        (HF, "full", "32-true", "fp32"),
        (HF, "full", "32", "fp32"),
        (HF, "lora", "bf16-mixed", "bf16_amp"),
        (HF, "full", "float32", "fp32"),
    ],
)
def test_precision(source: str, method: str, precision: str, expected: str) -> None:
    assert trial_of(source, method=method, precision=precision).scenario.config.precision == expected


@pytest.mark.parametrize(
    ("words", "precision", "method"),
    [
        ("full (pretrain)", "bf16", "full"),
        ("lora+packing", "bf16", "lora"),
        ("rslora", "bf16", "lora"),
        ("dora", "bf16", "dora"),
        ("qlora", "bf16+nf4", "qlora"),
        ("lora", "bf16 + bnb 4bit", "qlora"),
        ("lora on gptq-int4", "bf16+gptq-int4", "qlora"),
        ("adapter_v2", "bf16-true+bnb.nf4", "qlora"),
        ("Q-LoRA", "bf16", "qlora"),
        ("lora", "int4", "qlora"),
        ("lora", "nf4 double quant", "qlora"),
        ("finetuning", "4bit", "qlora"),  # nothing tunes 4-bit weights in full
        ("lora", "NVFP4", "lora"),  # a format of products, not of stored weights
    ],
)
def test_method(words: str, precision: str, method: str) -> None:
    assert trial_of(HF, method=words, precision=precision).method == method


@pytest.mark.parametrize(
    ("words", "note", "expected"),
    [
        ("gradient checkpointing", "", "full"),
        ("gradient_checkpointing: yes", "", "full"),
        ("gradient_checkpointing=False", "", "none"),
        ("no gradient checkpointing", "", "none"),
        ("w/o AC", "", "none"),
        ("True", "", "full"),
        ("1", "", "full"),
        ("full + activation offloading", "", "offloaded"),
        ("SAC", "", "selective"),
        ("", "TRL; gradient_checkpointing=True; r=8", "full"),
        ("", "TRL; without gradient checkpointing", "none"),
        ("", "", "none"),
    ],
)
def test_recompute_is_read_in_the_spellings_of_tables(words: str, note: str, expected: str) -> None:
    assert trial_of(HF, recompute=words, note=note).scenario.config.recompute == expected


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("recompute", "perhaps"),
        ("attention", "ring of fire"),
        ("optimizer", "galore_adamw"),
        ("optimizer", "lomo"),
        ("optimizer", "frobnicate"),
        ("precision", "posit8"),
        ("method", "full (dpo)"),
        ("method", "qdora"),
    ],
)
def test_words_that_are_not_understood_are_not_scored(column: str, words: str) -> None:
    assert words.split()[0].strip("()") in reason_of(HF, **{column: words})


@pytest.mark.parametrize(
    ("words", "stage", "sharded", "offloaded"),
    [
        ("ZeRO-3 + CPU offload", 3, 8, True),
        ("deepspeed stage 2", 2, 8, False),
        ("ds_z3", 3, 8, False),
        ("zero2", 2, 8, False),
        ("fsdp full_shard", 3, 8, False),
        ("FSDP SHARD_GRAD_OP", 2, 8, False),
        ("ddp", 3, 1, False),
    ],
)
def test_sharding_is_read_in_the_spellings_of_tables(words: str, stage: int, sharded: int, offloaded: bool) -> None:
    config = trial_of(HF, strategy=words, num_gpus=8).scenario.config
    assert (config.parallel.zero_stage, config.parallel.dp_shard) == (stage, sharded)
    assert (config.placement == "tiers") == offloaded


@pytest.mark.parametrize(
    ("strategy", "gpus", "label"),
    [
        ("single", 1, "single"),
        ("listed as 4xA10G", 4, "single"),  # litgpt's README: one GPU of a 4-GPU machine was busy
        ("ddp", 8, "ddp"),
        ("fsdp2", 8, "fsdp"),
        ("fsdp:FULL_SHARD", 16, "fsdp"),
        ("fsdp:SHARD_GRAD_OP", 8, "zero2"),
        ("fsdp8+cp1", 8, "fsdp"),
        ("fsdp4+cp2", 8, "fsdp+cp2"),
        ("fsdp32+tp8+asyncTP", 256, "fsdp+tp8"),
        ("ulysses dp2sp4 zero3", 8, "fsdp+ulysses4"),
        ("tp4 dp2", 8, "ddp+tp4"),
        ("device_map (naive MP)", 2, "layer_split"),
    ],
)
def test_strategy(strategy: str, gpus: int, label: str) -> None:
    trial = trial_of(HF, strategy=strategy, num_gpus=gpus, recompute="none")
    assert trial.scenario.config.parallel.label == label
    assert trial.scenario.cluster.num_gpus == (1 if label == "single" else gpus)


def test_a_megatron_recipe() -> None:
    """TP1, PP4, VP4, EP64 on 256 GPUs leaves 64 data-parallel ranks, whose optimizer state is sharded (ZeRO 1)."""
    trial = trial_of(
        "Megatron-Bridge perf summary",
        model="Qwen3_30B_a3B",
        precision="BF16",
        gpu="GB200",
        gpu_gb=186,
        num_gpus=256,
        strategy="megatron:TP1,PP4,CP1,VP4,EP64",
        micro_batch_size=1,
        global_batch_size=4096,
        seq_len=4096,
        recompute="recipe (perf)",
    )
    parallel = trial.scenario.config.parallel
    assert (parallel.pp, parallel.virtual_stages, parallel.ep, parallel.dp_shard, parallel.zero_stage) == (
        4,
        4,
        64,
        64,
        1,
    )
    assert trial.scenario.config.gradient_accumulation_steps == 4096 // 64


@pytest.mark.parametrize("source", ["torchtitan", HF])
def test_a_pipeline_cuts_the_local_batch(source: str) -> None:
    """Table 5: local batch 32 on 8 x 8 x 8 ranks is 32 micro-batches of one sample, not one of 32; a stranger's row of
    fewer micro-batches than stages can mean nothing else.
    """
    trial = trial_of(
        source,
        model="Llama 3.1 405B",
        precision="bf16",
        gpu="H100-96GB-HBM2e",
        num_gpus=512,
        strategy="fsdp8+tp8+pp8 1F1B",
        micro_batch_size=32,
        global_batch_size=256,
        seq_len=8192,
        recompute="full",
    )
    config = trial.scenario.config
    assert (config.micro_batch_size, config.gradient_accumulation_steps) == (1, 32)


@pytest.mark.parametrize(
    ("micro", "whole", "gpus", "note", "rounds"),
    [
        (1, 16, 1, "", 16),
        (2, 128, 8, "", 8),
        (1, None, 1, "micro_batches/step=2", 2),
        (3, 63, 1, "grad_accum=21", 21),
        (4, None, 1, "", 1),
    ],
)
def test_micro_batches(micro: int, whole: int | None, gpus: int, note: str, rounds: int) -> None:
    strategy = "ddp" if gpus > 1 else "single"
    trial = trial_of(HF, micro_batch_size=micro, global_batch_size=whole, num_gpus=gpus, strategy=strategy, note=note)
    assert trial.scenario.config.gradient_accumulation_steps == rounds


@pytest.mark.parametrize(
    ("source", "note", "rank", "targets"),
    [
        ("fitcheck", "r=32; kernel=eager; targets=['q_proj', 'v_proj']; double_quant=False", 32, ["q_proj", "v_proj"]),
        ("ms-swift benchmark", "r8 c_attn; FA x GC ablation", 8, list(QKV)),
        ("ms-swift benchmark", "r64 ALL-linear; rank/target ablation", 64, "all-linear"),
        ("litgpt", "trainable=4194304; quant=None", 8, ["q_proj", "v_proj"]),  # finetune/lora.py: r 8, query and value
        ("litgpt", "llama-2-7b/lora.yaml; epochs=4", 32, ["q_proj", "v_proj"]),  # config_hub: lora_r 32
        (HF, "", 16, "all-linear"),
    ],
)
def test_rank_and_targets(source: str, note: str, rank: int, targets: object) -> None:
    tune = trial_of(source, method="lora", note=note).tune
    assert (tune.rank, tune.targets) == (rank, targets)


def test_litgpts_default_adapter_has_the_parameters_that_its_table_prints() -> None:
    """resource-tables.md: 4,194,304 trainable parameters for Llama 2 7B."""
    trial = trial_of("litgpt", method="lora", precision="bf16-true")
    assert trial.scenario.ledger.num_trainable == 4_194_304


@pytest.mark.parametrize(
    ("words", "gpu", "expected"),
    [
        ("no", "A100-80GB-SXM", "eager"),
        ("flash_attention_2", "A100-80GB-SXM", "flash"),
        ("yes (TE/cuDNN)", "H100-80GB-SXM", "flash"),
        ("flash", "T4", "sdpa"),  # no flash kernels below compute capability 8.0
        ("sdpa", "A10G", "sdpa"),
        ("", "A100-80GB-SXM", "sdpa"),
    ],
)
def test_attention(words: str, gpu: str, expected: str) -> None:
    assert trial_of(HF, attention=words, gpu=gpu, precision="fp16").scenario.config.attention == expected


def test_lengths_that_a_note_describes_are_cut_at_the_limit() -> None:
    note = "r8; cls-fudan-news-zh: tokens mean 3234 std 2547 (min 91 max 19548) truncated/dropped at max_length"
    lengths = trial_of("ms-swift benchmark", method="lora", seq_len=2048, note=note).scenario.lengths
    assert lengths.maximum == pytest.approx(2048, abs=2)
    assert 1000 < lengths.mean < 2048


def test_lengths_that_nobody_describes_are_all_of_seq_len() -> None:
    assert trial_of(HF, seq_len=777).scenario.lengths.mean == 777


def test_an_unknown_source_gets_the_last_row_and_so_does_one_left_out() -> None:
    row = measured("a source of next year")
    assert find_stack(row) == unknown_stack() == all_stacks()[-1]
    assert find_stack(measured("litgpt")).name == "litgpt"
    assert find_stack(measured("litgpt"), unseen={"litgpt"}).name == unknown_stack().name


def test_a_bare_bf16_mixes_where_fp32_weights_fit() -> None:
    small = trial_of(HF, model="bert-base-uncased", precision="bf16")
    assert (small.scenario.config.precision, small.widened) == ("bf16_amp", ())
    large = trial_of(HF, precision="bf16")
    assert (large.scenario.config.precision, large.widened) == ("bf16_pure", ("precision",))
    assert trial_of(HF, precision="bf16", metric="oom").scenario.config.precision == "bf16_amp"


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"note": "TRL SFTTrainer; packed", "precision": "fp16"}, "trl"),
        ({"note": "TRL SFTTrainer; packed"}, "trl-bf16"),
        ({"table": "hiyouga/LLaMA-Factory README"}, "llama-factory"),
        ({"note": "twice as fast as others; compared with torchtune"}, "hf-trainer"),
        ({"note": "a control run"}, "hf-trainer"),  # TRL is not a part of another word
        ({"strategy": "DeepSpeed ZeRO-3", "num_gpus": 8}, "deepspeed-like"),
    ],
)
def test_a_program_is_found_by_repository_note_or_strategy(columns: dict[str, Any], name: str) -> None:
    assert trial_of("somebody's blog", **columns).scenario.stack.name == name


def test_quantised_leftovers_become_fp32_on_one_gpu_and_not_under_sharding() -> None:
    """peft's prepare_model_for_kbit_training; TRL leaves it out for sharded models (is_sharded_qlora)."""
    alone = trial_of(HF, method="qlora", precision="fp16 nf4").scenario.ledger
    sharded = trial_of(HF, method="qlora", precision="fp16 nf4", strategy="fsdp", num_gpus=2).scenario.ledger
    assert {group.unquantised_bytes_per_param for group in alone.groups} == {4.0}
    assert {group.unquantised_bytes_per_param for group in sharded.groups} == {2.0}


def test_experts_of_older_transformers_are_quantised() -> None:
    """Mixtral-8x7B in nf4: 45.1 B expert parameters at 0.5625 bytes; fms-acceleration measured 25.2 GB of weights."""
    mixtral = trial_of(
        HF, model="mistralai/Mixtral-8x7B-v0.1", method="qlora", precision="bf16+nf4", strategy="fsdp", num_gpus=2
    )
    assert 2 * mixtral.scenario.sums.params_bytes == pytest.approx(26.5e9, rel=0.03)


def test_a_step_in_backward_keeps_one_units_gradients() -> None:
    within = trial_of(HF, precision="bf16-true", note="optimizer_in_bwd=True").scenario
    after = trial_of(HF, precision="bf16-true").scenario
    whole = estimate_memory(after).terms["grads"]
    assert whole == pytest.approx(2 * 6_738_415_616, rel=1e-6)
    assert estimate_memory(within).terms["grads"] == pytest.approx(2 * 202_383_360, rel=1e-6)  # one block of Llama-2-7B


def predicted(trial: Trial) -> Prediction:
    found = predict(trial)
    assert isinstance(found, Prediction), found
    return found


def test_a_run_that_ran_held_no_more_than_its_gpu_shows() -> None:
    row: dict[str, Any] = {"method": "lora", "gpu": "RTX-4090", "gpu_gb": 24, "recompute": "full"}
    trial = trial_of(HF, unit="GiB (process, nvidia-smi)", micro_batch_size=16, **row)
    visible = trial.scenario.cluster.device.visible_bytes / 2**30
    assert predicted(trial).high == pytest.approx(visible, rel=1e-9)
    assert predicted(trial).expected < visible


def test_a_bare_unit_of_an_unknown_program_may_be_the_drivers_figure() -> None:
    bare = predicted(trial_of(HF, method="lora", unit="GB"))
    said = predicted(trial_of(HF, method="lora", unit="GB (reserved)"))
    assert bare.expected == said.expected
    assert bare.memory is not None
    assert bare.high - said.high == pytest.approx(bare.memory.terms["framework"] / 1e9)


def test_paged_state_is_not_in_torchs_counters() -> None:
    plain = predicted(trial_of(HF, precision="bf16-true", optimizer="adamw_8bit"))
    paged = predicted(trial_of(HF, precision="bf16-true", optimizer="paged_adamw_8bit"))
    assert plain.expected - paged.expected > 12.0  # GiB: 2 bytes a parameter of 6.74 B
    process = predicted(
        trial_of(HF, precision="bf16-true", optimizer="paged_adamw_8bit", unit="GiB (process, nvidia-smi)")
    )
    assert process.expected > paged.expected + 12.0


def test_logits_are_16_bit_where_wider_ones_would_not_have_fitted() -> None:
    """Gemma's 256,000 outputs at 16,384 tokens: 16 bytes a logit are 67 GB beside 17 GB of weights."""
    row: dict[str, Any] = {"model": "google/gemma-7b", "method": "lora", "micro_batch_size": 2, "seq_len": 8192}
    ran = trial_of(HF, recompute="full", **row)
    assert (ran.scenario.config.loss, ran.widened) == ("narrow", ("loss",))
    assert trial_of(HF, recompute="full", metric="oom", **row).scenario.config.loss == "upcast"


def test_gpu_names_without_a_form_are_read_and_widen_the_interval() -> None:
    assert trial_of(HF, method="lora", gpu="A100-80GB", gpu_gb=80).widened == ("gpu form",)
    assert trial_of(HF, method="lora", gpu="A100-80GB-SXM").widened == ()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"model": "no-such-model-9z"}, "no-such-model-9z"),
        ({"gpu": "unstated"}, "unstated"),
        ({"micro_batch_size": None}, "micro-batch size"),
        ({"seq_len": None}, "sequence length"),
        ({"method": "full+galore128"}, "galore128"),
        ({"method": "telepathy"}, "telepathy"),
        ({"recompute": "auto(budget 23)"}, "budget"),
        ({"metric": "mfu", "value": 0.42}, "derived"),
        ({"metric": "mfu", "value": 1.04}, "more than the peak"),
        ({"metric": "failed"}, "failure"),
        ({"quality": "suspect"}, "suspect"),
        ({"strategy": "tp3", "num_gpus": 8}, "degrees"),
        ({"strategy": "ddp", "num_gpus": None}, "number of GPUs"),
    ],
)
def test_what_cannot_be_predicted_says_why(columns: dict[str, Any], words: str) -> None:
    assert words in reason_of(HF, **columns)


def test_a_run_that_only_ran_out_of_memory_needs_no_batch() -> None:
    trial = trial_of(HF, metric="oom", micro_batch_size=None, seq_len=None)
    assert trial.scenario.config.micro_batch_size == 1
    assert "micro-batch size" in trial.widened
