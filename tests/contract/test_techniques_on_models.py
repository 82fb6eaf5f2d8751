"""Proves that what techniques declare on the ledger is what they build on real tiny models, on CPU.

Parameter bytes after conversion, what learns after an adapter or a freeze, and what backward
keeps with and without recomputation.
"""

import itertools
import warnings
from typing import Any

import pytest
import torch
from tiny_models import (
    BUILDABLE_PRECISIONS,
    MODELS,
    a_batch,
    a_config,
    a_job,
    ledger_saved_bytes,
    ledger_weight_bytes,
    param_bytes,
    saved_bytes_of,
    saved_while_alive,
)

from stoker.core.errors import EnvironmentProblem, ModelError
from stoker.techniques.adapter import ADAPTERS, adapter, qlora
from stoker.techniques.attention import ATTENTIONS
from stoker.techniques.capture import capture
from stoker.techniques.optimizer import OPTIMIZERS
from stoker.techniques.passes import apply_passes
from stoker.techniques.precision import precision
from stoker.techniques.recompute import recompute

TOKENS = 44  # 2 x 44 rows: no activation has the shape of a weight
BUILDABLE = [a for a in ADAPTERS if a.name != "qlora"]


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_ledger_counts_the_models_parameters(name: str) -> None:
    model, arch = MODELS[name]()
    assert arch.num_params == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("number_format", BUILDABLE_PRECISIONS, ids=lambda p: p.name)
@pytest.mark.parametrize("technique", BUILDABLE, ids=lambda a: a.name)
def test_bytes_after_conversion(name: str, technique: Any, number_format: Any) -> None:
    model, arch = MODELS[name]()
    ledger = apply_passes(arch, a_job(arch, method=technique.name, rank=4), a_config(precision=number_format.name))
    wrapped = technique.attach(model, a_job(arch, method=technique.name, rank=4).tune)
    number_format.convert(wrapped)
    # peft keeps a frozen copy of each module that it trains in full
    copies = sum(p.numel() * p.element_size() for n, p in wrapped.named_parameters() if ".original_module." in n)
    assert param_bytes(wrapped) - copies == ledger_weight_bytes(ledger)
    assert not [n for n, p in wrapped.named_parameters() if "lora_" in n and p.dtype != torch.float32]


@pytest.mark.parametrize("technique", BUILDABLE, ids=lambda a: a.name)
@pytest.mark.parametrize("targets", ["all-linear", "attention"])
@pytest.mark.parametrize("rank", [1, 8])
def test_what_learns_after_an_adapter(name: str, technique: Any, targets: str, rank: int) -> None:
    model, arch = MODELS[name]()
    job = a_job(arch, method=technique.name, rank=rank, targets=targets)
    ledger = technique.apply(apply_passes(arch, a_job(arch), a_config()), job.tune)
    wrapped = technique.attach(model, job.tune)
    learning = {n: p.numel() for n, p in wrapped.named_parameters() if p.requires_grad}
    assert sum(learning.values()) == ledger.num_trainable
    adapters = sum(count for n, count in learning.items() if "lora_" in n)
    assert adapters == ledger.num_adapter_params
    if technique.name != "full" and name in ("bert", "electra", "vit"):
        assert any("classifier" in n for n in learning), "a fresh head must learn"


@pytest.mark.parametrize("targets", [["q_proj"], ["self_attn.q_proj", "down_proj"]])
def test_named_targets(targets: list[str]) -> None:
    model, arch = MODELS["llama"]()
    job = a_job(arch, method="lora", rank=4, targets=targets)
    ledger = apply_passes(arch, job, a_config())
    wrapped = adapter("lora").attach(model, job.tune)
    assert sum(p.numel() for p in wrapped.parameters() if p.requires_grad) == ledger.num_trainable


FREEZES = {
    "llama": [["embed_tokens"], ["model.layers.0", "layers.2"], ["model"], ["lm_head"], ["model.layers"]],
    "llama-tied": [["model.embed_tokens"]],
    "bert": [["embeddings"], ["bert.embeddings", "encoder.layer.0"], ["bert"], ["bert.encoder"], ["classifier"]],
    "electra": [["electra.encoder.layer"], ["electra.encoder.layer.1"], ["electra"]],
    "vit": [["vit.embeddings"], ["embeddings"]],
}
FREEZE_CASES = [(model, prefixes) for model, several in FREEZES.items() for prefixes in several]


@pytest.mark.parametrize(("model_name", "prefixes"), FREEZE_CASES, ids=str)
@pytest.mark.parametrize("method", ["full", "lora"])
def test_what_learns_after_a_freeze(model_name: str, prefixes: list[str], method: str) -> None:
    model, arch = MODELS[model_name]()
    job = a_job(arch, method=method, rank=4, freeze=prefixes)
    try:
        ledger = apply_passes(arch, job, a_config())
    except ModelError:
        with pytest.raises(ModelError, match="ST281"):  # every block is frozen: both sides say so
            adapter(method).attach(model, job.tune)
        return
    wrapped = adapter(method).attach(model, job.tune)
    assert sum(p.numel() for p in wrapped.parameters() if p.requires_grad) == ledger.num_trainable


def test_a_prefix_that_names_nothing_is_an_error() -> None:
    model, arch = MODELS["bert"]()
    with pytest.raises(ModelError, match="ST282"):
        adapter("full").attach(model, a_job(arch, freeze=["embedings"]).tune)
    with pytest.raises(ModelError, match="ST282"):  # planning says so too
        apply_passes(arch, a_job(arch, freeze=["encoderr", "layer"]), a_config())


def test_a_model_frozen_whole_is_an_error_on_both_sides() -> None:
    """A plan with a price for training nothing would be a bill for nothing."""
    model, arch = MODELS["bert"]()
    job = a_job(arch, freeze=[model.base_model_prefix, "classifier"])
    with pytest.raises(ModelError, match="ST283"):
        adapter("full").attach(model, job.tune)
    with pytest.raises(ModelError, match="ST283"):
        apply_passes(arch, job, a_config())


def test_the_base_models_own_name_freezes_in_planning_too(name: str) -> None:
    model, arch = MODELS[name]()
    job = a_job(arch, freeze=[model.base_model_prefix])
    if name == "llama-tied":
        with pytest.raises(ModelError, match="ST283"):  # its head is the embedding, which is frozen
            apply_passes(arch, job, a_config())
        return
    assert apply_passes(arch, job, a_config()).num_trainable < arch.num_params


def test_qlora_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qlora, "find_spec", lambda name: None)
    model, arch = MODELS["llama"]()
    with pytest.raises(EnvironmentProblem, match="ST580"):
        adapter("qlora").attach(model, a_job(arch, method="qlora").tune)


@pytest.mark.parametrize("number_format", BUILDABLE_PRECISIONS, ids=lambda p: p.name)
@pytest.mark.parametrize("method", ["full", "lora", "dora"])
def test_every_precision_trains_every_method(name: str, method: str, number_format: Any) -> None:
    model, arch = MODELS[name]()
    job = a_job(arch, method=method, rank=4)
    model = adapter(method).attach(model, job.tune)
    number_format.convert(model)
    params = [p for p in model.parameters() if p.requires_grad]
    stepper = number_format.wrap_optimizer(OPTIMIZERS[0], [{"params": params, "lr": 1e-2, "weight_decay": 0.0}])
    batch = _cast_pixels(a_batch(model), number_format)
    losses = []
    for _ in range(8):
        with number_format.autocast("cpu"):
            value = model(**batch).loss
        value.backward()
        stepper.step()
        stepper.zero_grad()
        losses.append(float(value.detach()))
    assert losses[-1] < losses[0] and all(map(torch.isfinite, torch.tensor(losses)))


def _cast_pixels(batch: dict[str, torch.Tensor], number_format: Any) -> dict[str, torch.Tensor]:
    """Pixels as 16-bit weights want them; under autocast they may stay fp32."""
    if "pixel_values" in batch and number_format.name in ("bf16", "bf16_pure"):
        return {**batch, "pixel_values": batch["pixel_values"].to(torch.bfloat16)}
    return batch


def test_case_24_what_learns_in_fp16_is_fp32_and_small_updates_survive() -> None:
    model, arch = MODELS["llama"]()
    model.to(torch.float16)
    model = adapter("lora").attach(model, a_job(arch, method="lora", rank=4).tune)
    embedding = model.get_input_embeddings().weight
    embedding.requires_grad_(True)
    number_format = precision("fp16_amp")
    number_format.convert(model)
    learning = [p for p in model.parameters() if p.requires_grad]
    assert {p.dtype for p in learning} == {torch.float32}
    assert {p.dtype for p in model.parameters() if not p.requires_grad} == {torch.float16, torch.float32}
    with torch.no_grad():
        embedding.fill_(1.0)
    stepper = number_format.wrap_optimizer(OPTIMIZERS[0], [{"params": learning, "lr": 4e-4, "weight_decay": 0.0}])
    with number_format.autocast("cpu"):
        value = model(**a_batch(model)).loss
    (value * 1024.0).backward()
    assert all(torch.isfinite(p.grad).all() for p in learning if p.grad is not None)
    embedding.grad = torch.full_like(embedding, -1.0)
    stepper.step()
    assert float(embedding.detach().mean()) == pytest.approx(1.0 + 4e-4, abs=1e-6)
    assert torch.ones((), dtype=torch.float16) + 4e-4 == 1.0  # what fp16 weights would have kept of it


def test_frozen_linears_in_16_bits_compute_what_autocast_computes() -> None:
    """Narrowing frozen linears beside adapters changes no bit of the loss."""
    losses = []
    for narrow in (True, False):
        model, arch = MODELS["llama"]()
        torch.manual_seed(1)
        model = adapter("lora").attach(model, a_job(arch, method="lora", rank=4).tune)
        number_format = precision("bf16_amp")
        if narrow:
            number_format.convert(model)
            assert any(p.dtype == torch.bfloat16 for p in model.parameters())
        with number_format.autocast("cpu"):
            losses.append(model(**a_batch(model)).loss.detach())
    assert torch.equal(losses[0], losses[1])


@pytest.mark.parametrize("model_name", ["llama", "bert", "electra"])
def test_eager_attention_keeps_scores_and_sdpa_does_not(model_name: str) -> None:
    measured, declared = {}, {}
    for technique in ATTENTIONS:
        if technique.name == "flash":
            continue
        model, arch = MODELS[model_name]()
        model.set_attn_implementation(technique.hf_name)
        model.train()
        measured[technique.name] = saved_bytes_of(model, a_batch(model, tokens=TOKENS), precision("fp32"))
        ledger = apply_passes(arch, a_job(arch), a_config(attention=technique.name))
        declared[technique.name] = ledger_saved_bytes(ledger, samples=2, tokens=TOKENS)
    more, promised = measured["eager"] - measured["sdpa"], declared["eager"] - declared["sdpa"]
    assert promised > 0 and more == pytest.approx(promised, rel=0.2)


@pytest.mark.parametrize("model_name", ["llama", "bert"])
@pytest.mark.parametrize(("number_format", "method"), itertools.product(["fp32", "bf16", "bf16_amp"], ["full", "lora"]))
def test_saved_activations_by_format_and_method(model_name: str, number_format: str, method: str) -> None:
    """Blocks' share, as what full recomputation would free."""
    technique = precision(number_format)
    measured, declared = {}, {}
    for name in ("none", "full"):
        model, arch = MODELS[model_name]()
        job = a_job(arch, method=method, rank=4)
        model = adapter(method).attach(model, job.tune)
        technique.convert(model)
        model.train()
        recompute(name).attach(model)
        measured[name] = saved_bytes_of(model, a_batch(model, tokens=TOKENS), technique)
        config = a_config(precision=number_format, recompute=name)
        declared[name] = ledger_saved_bytes(apply_passes(arch, job, config), samples=2, tokens=TOKENS)
    freed, promised = measured["none"] - measured["full"], declared["none"] - declared["full"]
    assert freed == pytest.approx(promised, rel=0.15)


@pytest.mark.slow
def test_compile_changes_no_output_and_no_name() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    rows, before = torch.randn(4, 8), list(model.state_dict())
    expected = model(rows).detach()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = capture("compile").attach(model)
        actual = compiled(rows).detach()
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert list(compiled.state_dict()) == before


@pytest.mark.parametrize("number_format", ["fp32", "bf16", "bf16_amp"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_what_dora_keeps_of_its_blocks(number_format: str, dropout: float) -> None:
    """Every storage by itself, but the weight norm's own (an identity and thin factors), which are dropped at once."""
    technique = precision(number_format)
    kept: dict[str, int] = {}
    model, arch = MODELS["llama"]()
    job = a_job(arch, method="dora", rank=4, dropout=dropout)
    model = adapter("dora").attach(model, job.tune)
    technique.convert(model)
    model.train()
    batch = a_batch(model, tokens=TOKENS)
    masks = 3 if dropout else 0  # a CPU keeps them at the width of what they drop, 4 bytes instead of 1
    for name in ("none", "full"):
        recompute(name).attach(model)
        kept[name] = saved_while_alive(model, batch, technique)
    ledger = apply_passes(arch, job, a_config(precision=number_format))
    full = apply_passes(arch, job, a_config(precision=number_format, recompute="full"))
    declared = ledger_saved_bytes(ledger, samples=2, tokens=TOKENS)
    (block,) = (group for group in ledger.groups if group.kind == "block")
    declared += masks * sum(t.elements for t in block.saved if t.role == "mask") * block.repeats * 2 * TOKENS
    declared -= ledger_saved_bytes(full, samples=2, tokens=TOKENS)
    assert kept["none"] - kept["full"] == pytest.approx(declared, rel=0.05)
