"""Proves the arithmetic of techniques on the ledger, by hand-computed numbers and the cases of shared/cases.

No torch: the last test starts a fresh interpreter and looks.
"""

import subprocess
import sys
from dataclasses import replace

import pytest

from stoker.core.dtypes import BYTES_PER_ELEMENT
from stoker.core.errors import ModelError, PlanningError
from stoker.core.hardware import Device
from stoker.core.job import DataSpec, Job, TrainSpec, TuneSpec
from stoker.core.ledger import Attention, Ledger, Linear, ModelArch, ModuleGroup, SavedTensor, untouched
from stoker.core.run_config import Parallel, RunConfig
from stoker.core.units import GIB, MIB
from stoker.techniques.adapter import ADAPTERS, adapter
from stoker.techniques.adapter.qlora import nf4_bytes
from stoker.techniques.attention import ATTENTIONS, attention
from stoker.techniques.capture import CAPTURES
from stoker.techniques.loader import batch_bytes, shm_bytes, workers_that_fit
from stoker.techniques.loss import loss
from stoker.techniques.optimizer import optimizer
from stoker.techniques.packing import PACKINGS, packing
from stoker.techniques.parallel import parallel
from stoker.techniques.passes import apply_passes
from stoker.techniques.precision import PRECISIONS, precision
from stoker.techniques.recompute import RECOMPUTES

HIDDEN, INNER, VOCAB, LAYERS = 8, 32, 100, 4


def a_model(*, outputs: int = VOCAB) -> ModelArch:
    """Embedding, four blocks of two linears, a head: small enough to add up by hand."""
    up = Linear(name="mlp.up_proj", in_features=HIDDEN, out_features=INNER)
    query = Linear(name="self_attn.q_proj", in_features=HIDDEN, out_features=HIDDEN)
    block = ModuleGroup(
        name="layers",
        kind="block",
        num_params=up.num_params + query.num_params + HIDDEN,
        repeats=LAYERS,
        linears=(query, up),
        attention=Attention(num_heads=2, num_kv_heads=2, head_dim=4, causal=True),
        saved=(
            SavedTensor(name="norm.input", role="norm_input", elements=HIDDEN),
            SavedTensor(name="q.input", role="linear_input", elements=HIDDEN, linears=("self_attn.q_proj",)),
            SavedTensor(name="up.input", role="linear_input", elements=HIDDEN, linears=("mlp.up_proj",)),
            SavedTensor(name="softmax", role="scores", elements=2, per_key=True),
        ),
        input_elements=HIDDEN,
    )
    head = Linear(name="lm_head", in_features=HIDDEN, out_features=outputs)
    return ModelArch(
        name="toy",
        family="toy",
        modality="text",
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_outputs=outputs,
        vocab_size=VOCAB,
        groups=(
            ModuleGroup(name="embed_tokens", kind="embedding", num_params=VOCAB * HIDDEN),
            block,
            ModuleGroup(name="lm_head", kind="head", num_params=head.num_params, linears=(head,)),
        ),
    )


def a_job(**tune: object) -> Job:
    data = DataSpec(num_samples=10, tokens_mean=8, tokens_p99=8, tokens_max=8)
    return Job(model="toy", task="causal_lm", data=data, tune=TuneSpec(**tune), train=TrainSpec())  # type: ignore[arg-type]


def a_config(**changes: object) -> RunConfig:
    settings: dict[str, object] = {"micro_batch_size": 1, "gradient_accumulation_steps": 1, "global_batch_size": 1}
    return RunConfig(**{**settings, **changes})  # type: ignore[arg-type]


def state_bytes(ledger: Ledger) -> float:
    """Weights, gradients, masters and optimizer state of an unsharded copy."""
    total = 0.0
    for g in ledger.groups:
        base = g.num_params * g.weight_bytes_per_param
        base += g.base_trainable * (g.grad_bytes_per_param + g.master_bytes_per_param)
        total += g.repeats * (base + 2 * g.adapter_params * g.adapter_bytes_per_param + g.state_bytes)
    return total


@pytest.mark.parametrize(
    ("name", "per_param"),
    [("fp32", 16), ("bf16_amp", 16), ("fp16_amp", 16), ("bf16", 16), ("fp8", 16), ("bf16_pure", 8)],
)
def test_full_tuning_costs_the_stated_bytes_a_parameter(name: str, per_param: int) -> None:
    arch = a_model()
    ledger = apply_passes(arch, a_job(), a_config(precision=name))
    assert state_bytes(ledger) == per_param * arch.num_params


def test_sgd_keeps_one_buffer() -> None:
    arch = a_model()
    job = replace(a_job(), train=TrainSpec(optimizer="sgd"))
    assert state_bytes(apply_passes(arch, job, a_config(precision="fp32"))) == 12 * arch.num_params


def test_case_3_lora_saves_a_fixed_amount_whatever_the_length() -> None:
    base, lora = 1_100_048_384, 50_462_720
    group = ModuleGroup(name="layers", kind="block", num_params=base)
    arch = replace(a_model(), groups=(group,))
    frozen = replace(group, trainable_params=0, adapter_params=lora)
    number_format, adamw = precision("bf16"), optimizer("adamw")

    def total(of: ModuleGroup) -> float:
        ledger = number_format.apply(replace(untouched(arch), groups=(of,)))
        return state_bytes(ledger.map_groups(lambda g: replace(g, state_bytes=adamw.state_bytes(g)), by="adamw"))

    assert total(group) - total(frozen) == 14 * base - 16 * lora
    assert (total(group) - total(frozen)) / 1e9 == pytest.approx(14.59, abs=0.005)


def test_case_4_adam_state_of_a_vision_model() -> None:
    group = ModuleGroup(name="all", kind="block", num_params=32_111_170)
    assert optimizer("adamw").state_bytes(group) / 1e6 == pytest.approx(256.9, abs=0.05)


def test_case_1_logits_have_their_own_lines() -> None:
    terms = loss("eager").logits_terms(8192, 128_256, 2.0)
    assert terms["logits"] / GIB == pytest.approx(1.96, abs=0.005)
    assert terms["fp32_copy"] / GIB == pytest.approx(3.91, abs=0.005)
    assert terms["fp32_gradient"] / GIB == pytest.approx(3.91, abs=0.005)
    chunked = loss("chunked").logits_terms(8192, 128_256, 2.0)
    assert (chunked["fp32_copy"] + chunked["fp32_gradient"]) / GIB <= 0.98
    # the trap: 16,384 x 248,320 is 8.14 GB in bf16, not 16
    assert loss("eager").logits_terms(16_384, 248_320, 2.0)["logits"] / 1e9 == pytest.approx(8.14, abs=0.005)


@pytest.mark.parametrize("name", ["eager", "chunked"])
def test_case_1_logits_are_linear_in_vocabulary(name: str) -> None:
    kernel = loss(name)
    assert kernel.logits_bytes(512, 2000, 2.0) == 2 * kernel.logits_bytes(512, 1000, 2.0)
    assert kernel.logits_bytes(512, 1000, 2.0) == 2 * kernel.logits_bytes(256, 1000, 2.0)


def test_lora_counts_rank_times_both_sides_and_freezes_the_rest() -> None:
    ledger = apply_passes(a_model(), a_job(method="lora", rank=4), a_config(precision="bf16"))
    per_block = 4 * (HIDDEN + HIDDEN) + 4 * (HIDDEN + INNER)
    assert ledger.num_trainable == ledger.num_adapter_params == LAYERS * per_block
    dora = apply_passes(a_model(), a_job(method="dora", rank=4), a_config(precision="bf16"))
    assert dora.num_trainable == LAYERS * (per_block + HIDDEN + INNER)
    only_attention = apply_passes(a_model(), a_job(method="lora", rank=4, targets="attention"), a_config())
    assert only_attention.num_trainable == LAYERS * 4 * (HIDDEN + HIDDEN)


def test_a_classification_head_learns_beside_adapters() -> None:
    ledger = apply_passes(a_model(outputs=3), a_job(method="lora", rank=4), a_config())
    assert ledger.groups[-1].trainable == 3 * HIDDEN


def test_frozen_linears_keep_no_input_and_adapters_keep_their_own() -> None:
    fp32, bf16, amp = (
        apply_passes(a_model(), a_job(method="lora", targets=["q_proj"]), a_config(precision=name)).groups[1]
        for name in ("fp32", "bf16", "bf16_amp")
    )
    assert [t.name for t in fp32.saved if t.role == "linear_input"] == ["q.input"]
    for group, width in ((bf16, 4.0), (amp, None)):
        assert not [t for t in group.saved if t.role == "linear_input"]
        (own,) = [t for t in group.saved if t.role == "adapter_input"]
        assert (own.elements, own.bytes_per_element) == (HIDDEN, width)


def test_adapters_are_not_put_on_experts_or_routers_nor_on_what_peft_takes_for_experts() -> None:
    """Four blocks, rank 4: q_proj of 8 x 8 learns 4 x 4 x 16; beside experts up_proj gets none."""
    experts = Linear(name="experts.down_proj", in_features=8, out_features=8, count=4, active_frac=0.5)
    router = Linear(name="mlp.gate", in_features=8, out_features=4)
    arch = a_model()
    block = replace(arch.groups[1], linears=(*arch.groups[1].linears, experts, router))
    with_experts = replace(arch, groups=(arch.groups[0], block, arch.groups[2]))
    job = a_job(method="lora", rank=4)
    assert apply_passes(with_experts, job, a_config()).num_trainable == LAYERS * 4 * (HIDDEN + HIDDEN)
    alone = LAYERS * 4 * (HIDDEN + HIDDEN + HIDDEN + INNER)
    assert apply_passes(arch, job, a_config()).num_trainable == alone


def test_an_adapter_that_finds_nothing_is_an_error() -> None:
    with pytest.raises(ModelError, match="ST281"):
        apply_passes(a_model(), a_job(method="lora", targets=["nowhere"]), a_config())


def test_qlora_quantises_block_linears_only() -> None:
    """Packed nibbles, one fp32 scale per 64 weights, and a code book of 64 bytes with each of the two matrices."""
    ledger = apply_passes(a_model(), a_job(method="qlora", rank=4), a_config(precision="bf16"))
    embedding, block, head = ledger.groups
    linears = HIDDEN * HIDDEN + HIDDEN * INNER
    packed = linears * BYTES_PER_ELEMENT["nf4"] + 2 * 64
    assert block.num_params * block.weight_bytes_per_param == pytest.approx(packed + HIDDEN * 2.0)
    assert (block.quantised_bytes, block.dequantised_bytes) == (packed, 2 * linears)
    assert block.dequantised_temp_bytes == 2 * HIDDEN * INNER
    assert embedding.weight_bytes_per_param == head.weight_bytes_per_param == 2.0
    assert embedding.dequantised_bytes == head.dequantised_bytes == 0.0


def test_double_quantisation_takes_0_516_bytes_a_parameter() -> None:
    """0.5 + 1/64 + 4/(64 x 256) (2305.14314, section 3), code books aside."""
    size = 4096 * 14336
    assert nf4_bytes(size, double_quant=False) / size == pytest.approx(0.5625, rel=1e-5)
    assert nf4_bytes(size, double_quant=True) / size == pytest.approx(0.5 + 1 / 64 + 4 / (64 * 256), rel=1e-4)


@pytest.mark.parametrize("name", ["bf16", "fp16_amp"])
def test_unquantised_weights_may_be_fp32_and_then_so_are_hidden_states(name: str) -> None:
    job = a_job(method="qlora", rank=4, unquantised="fp32")
    ledger = apply_passes(a_model(), job, a_config(precision=name))
    embedding, block, head = ledger.groups
    assert embedding.weight_bytes_per_param == head.weight_bytes_per_param == 4.0
    assert block.input_elements * ledger.compute_bytes == 4.0 * HIDDEN


def test_case_6_experts_stay_unquantised() -> None:
    experts = Linear(name="experts.down_proj", in_features=8, out_features=8, count=64, active_frac=0.125)
    arch = a_model()
    block = replace(
        arch.groups[1],
        linears=(*arch.groups[1].linears, experts),
        num_params=arch.groups[1].num_params + experts.num_params,
    )
    with_experts = replace(arch, groups=(arch.groups[0], block, arch.groups[2]))
    quantised = apply_passes(with_experts, a_job(method="qlora"), a_config(precision="bf16")).groups[1]
    assert quantised.num_params * quantised.weight_bytes_per_param >= 2.0 * experts.num_params


@pytest.mark.parametrize("prefix", ["embed_tokens", "model.embed_tokens"])
def test_a_frozen_embedding_leaves_backward(prefix: str) -> None:
    embedding, block, _head = apply_passes(a_model(), a_job(freeze=[prefix]), a_config()).groups
    assert embedding.trainable == 0 and not embedding.in_backward and embedding.state_bytes == 0
    assert block.trainable == block.num_params and block.in_backward


def test_frozen_layers_split_the_block_group() -> None:
    ledger = apply_passes(a_model(), a_job(freeze=["embed_tokens", "layers.0", "model.layers.1"]), a_config())
    assert [(g.name, g.repeats, g.trainable > 0, g.in_backward) for g in ledger.groups] == [
        ("embed_tokens", 1, False, False),
        ("layers[0:2]", 2, False, False),
        ("layers[2:4]", 2, True, True),
        ("lm_head", 1, True, True),
    ]
    assert not ledger.groups[1].saved
    upper = apply_passes(a_model(), a_job(freeze=["layers.3"]), a_config()).groups
    assert [(g.repeats, g.trainable > 0, g.in_backward) for g in upper[1:3]] == [(3, True, True), (1, False, True)]
    assert not [t for t in upper[2].saved if t.role == "linear_input"]


def test_the_base_models_name_freezes_all_but_the_head() -> None:
    ledger = apply_passes(a_model(), a_job(freeze=["model"]), a_config())
    assert [g.name for g in ledger.groups if g.trainable] == ["lm_head"]


def test_attention_kernels_keep_or_drop_scores() -> None:
    for technique in ATTENTIONS:
        block = technique.apply(untouched(a_model())).groups[1]
        assert any(t.role == "scores" for t in block.saved) == (technique.name == "eager")


def test_recompute_marks_blocks_that_take_part_in_backward() -> None:
    ledger = apply_passes(a_model(), a_job(freeze=["embed_tokens", "layers.0"]), a_config(recompute="full"))
    assert [g.recomputed for g in ledger.groups] == [False, False, True, False]


def test_gradients_accumulate_in_fp32_only_where_they_are_narrower_and_several() -> None:
    def accumulates(name: str, steps: int) -> bool:
        config = a_config(precision=name, gradient_accumulation_steps=steps, global_batch_size=steps)
        return apply_passes(a_model(), a_job(), config).accumulates_fp32

    assert accumulates("bf16", 2) and accumulates("bf16_pure", 2)
    assert not accumulates("bf16", 1) and not accumulates("bf16_amp", 2) and not accumulates("fp32", 2)


def test_a_step_moves_28_bytes_a_parameter_with_adam_on_masters() -> None:
    assert optimizer("adamw").step_bytes_per_param(2.0, 4.0, 2.0) == 28.0
    assert optimizer("adamw").step_bytes_per_param(4.0, 0.0, 4.0) == 28.0
    assert optimizer("sgd").step_bytes_per_param(4.0, 0.0, 4.0) == 20.0


def a_device(capability: tuple[int, int] | None, *dtypes: str, kind: str = "cuda") -> Device:
    return Device(
        name="X",
        kind=kind,  # type: ignore[arg-type]
        vendor="v",
        architecture="a",
        compute_capability=capability,
        sold_bytes=1,
        visible_bytes=1,
        memory_bytes_per_s=1.0,
        peak_flops_per_s=dict.fromkeys(dtypes, 1.0),
        interconnect="none",
        link_bytes_per_s=1.0,
        pcie_bytes_per_s=1.0,
    )


@pytest.mark.parametrize(
    ("capability", "bf16", "flash"),
    [((7, 0), False, False), ((7, 5), False, False), ((8, 0), True, True), ((8, 9), True, True), ((9, 0), True, True)],
)
def test_a_t4_or_v100_never_gets_bf16_or_flash(capability: tuple[int, int], bf16: bool, flash: bool) -> None:
    device = a_device(capability, "fp32", "fp16", "bf16")  # even where a table claims bf16
    for name in ("bf16", "bf16_amp", "bf16_pure"):
        assert (precision(name).unsupported(device) is None) == bf16
    assert precision("fp16_amp").unsupported(device) is None
    assert precision("fp32").unsupported(device) is None
    assert (attention("flash").unsupported(device) is None) == flash


@pytest.mark.parametrize(("capability", "works"), [((8, 0), False), ((8, 6), False), ((8, 9), True), ((9, 0), True)])
def test_fp8_needs_ada_or_hopper(capability: tuple[int, int], works: bool) -> None:
    assert (precision("fp8").unsupported(a_device(capability, "bf16", "fp8")) is None) == works


def test_fp8_products_are_those_of_blocks_with_sides_of_16() -> None:
    """8 x 8 and 8 x 32 are too small for the units; 16 x 32 is not."""
    arch = a_model()
    assert all(g.matmul_dtype is None for g in apply_passes(arch, a_job(), a_config(precision="fp8")).groups)
    wide = Linear(name="mlp.up_proj", in_features=16, out_features=32)
    block = replace(arch.groups[1], linears=(wide,), num_params=wide.num_params)
    ledger = apply_passes(
        replace(arch, groups=(arch.groups[0], block, arch.groups[2])), a_job(), a_config(precision="fp8")
    )
    assert [g.matmul_dtype for g in ledger.groups] == [None, "fp8", None]
    assert ledger.groups[1].matmul_cast_elements == 16


def test_a_pascal_gpu_has_no_fp16_units_and_a_cpu_computes_in_all() -> None:
    assert precision("fp16_amp").unsupported(a_device((6, 1), "fp32")) is not None
    cpu = a_device(None, "fp32", kind="cpu")
    assert all(p.unsupported(cpu) is None for p in PRECISIONS)
    assert attention("flash").unsupported(cpu) is not None


def test_fsdp_shards_everything_and_gathers_frozen_weights_too() -> None:
    fsdp = Parallel(dp_shard=4)
    config = a_config(precision="bf16", parallel=fsdp, gradient_accumulation_steps=3, global_batch_size=12)
    arch = a_model()
    lora = apply_passes(arch, a_job(method="lora", rank=4), config)
    assert {g.weight_shards for g in lora.groups} == {4}
    technique = parallel(fsdp)
    gathered = sum(c.num_bytes * c.count for c in technique.collectives(lora, config) if c.operation == "all_gather")
    block = lora.groups[1]
    block_bytes = LAYERS * (2.0 * block.num_params + 4.0 * block.adapter_params)
    root_bytes = 2.0 * (arch.groups[0].num_params + arch.groups[2].num_params)
    assert gathered == 3 * (2 * block_bytes + root_bytes)
    scattered = sum(
        c.num_bytes * c.count for c in technique.collectives(lora, config) if c.operation == "reduce_scatter"
    )
    assert scattered == 3 * 4.0 * lora.num_adapter_params


def test_ddp_sends_each_gradient_once_a_step_however_many_micro_batches() -> None:
    ddp = Parallel(dp_replicate=2)
    config = a_config(precision="fp32", parallel=ddp, gradient_accumulation_steps=4, global_batch_size=8)
    arch = a_model()
    ledger = apply_passes(arch, a_job(), config)
    (collective,) = parallel(ddp).collectives(ledger, config)
    assert collective.num_bytes * collective.count == 4.0 * arch.num_params
    assert parallel(ddp).buffer_bytes(ledger, config) == (0.0, 0.0)


def test_case_28_shared_memory_of_workers() -> None:
    each = batch_bytes(32, 8192, 3, 8)
    assert each == 6 * MIB
    assert shm_bytes(32, 8192, 3, 8, workers=8, prefetch=2) == 96 * MIB
    assert workers_that_fit(64 * MIB, each, workers=8, prefetch=2) == 5
    assert workers_that_fit(4 * MIB, each, workers=8, prefetch=2) == 0


def test_names_are_unique_and_what_is_not_built_is_named() -> None:
    for choices in (ADAPTERS, PRECISIONS, ATTENTIONS, RECOMPUTES, PACKINGS, CAPTURES):
        names = [technique.name for technique in choices]
        assert len(names) == len(set(names))
    for call in (lambda: packing("packed"), lambda: adapter("prefix")):
        with pytest.raises(PlanningError, match="ST380"):
            call()


def test_costs_load_no_torch() -> None:
    code = (
        "import sys\n"
        "import stoker.techniques.passes, stoker.techniques.loss, stoker.techniques.packing\n"
        "import stoker.techniques.capture, stoker.techniques.loader\n"
        "bad = [m for m in ('torch', 'transformers', 'peft') if m in sys.modules]\n"
        "sys.exit(', '.join(bad) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
