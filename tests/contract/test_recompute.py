"""Proves that recomputation changes no gradient, and that blocks keep what the ledger declares: on the device, and in
host memory where their inputs wait there.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_models import MODELS, a_batch, a_config, a_job, ledger_saved_bytes, saved_bytes_of

from stoker.core.errors import ModelError
from stoker.techniques.adapter import adapter
from stoker.techniques.passes import apply_passes
from stoker.techniques.precision import precision
from stoker.techniques.recompute import RECOMPUTES, host_inputs, kept_outputs, recompute

TOKENS = 44  # 2 x 44 rows: no activation has the shape of a weight
NAMES = [technique.name for technique in RECOMPUTES]


def built(model_name: str, method: str, number_format: str, technique: str) -> torch.nn.Module:
    model, arch = MODELS[model_name]()
    torch.manual_seed(1)
    model = adapter(method).attach(model, a_job(arch, method=method, rank=4).tune)
    precision(number_format).convert(model)
    recompute(technique).attach(model)
    model.train()
    return model


@pytest.mark.parametrize("model_name", ["llama", "bert", "electra", "vit"])
@pytest.mark.parametrize("method", ["full", "lora", "dora"])
@pytest.mark.parametrize("number_format", ["fp32", "bf16", "bf16_amp"])
def test_recompute_changes_no_gradient(model_name: str, method: str, number_format: str) -> None:
    grads: dict[str, list[torch.Tensor]] = {}
    for name in NAMES:
        model = built(model_name, method, number_format, name)
        batch = a_batch(model)
        if "pixel_values" in batch and number_format == "bf16":
            batch["pixel_values"] = batch["pixel_values"].to(torch.bfloat16)
        for _ in range(2):  # the second forward must not read what the first left
            with precision(number_format).autocast("cpu"):
                loss = model(**batch).loss
            loss.backward()
        grads[name] = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(grads["none"]) > 0
    for name in NAMES:
        assert len(grads[name]) == len(grads["none"])
        assert all(torch.equal(a, b) for a, b in zip(grads[name], grads["none"], strict=True)), name


@pytest.mark.parametrize("model_name", ["llama", "bert", "electra"])
def test_full_keeps_block_inputs_only(model_name: str) -> None:
    measured, declared = {}, {}
    for name in ("none", "full"):
        model, arch = MODELS[model_name]()
        model.train()
        recompute(name).attach(model)
        measured[name] = saved_bytes_of(model, a_batch(model, tokens=TOKENS), precision("fp32"))
        ledger = apply_passes(arch, a_job(arch), a_config(recompute=name))
        declared[name] = ledger_saved_bytes(ledger, samples=2, tokens=TOKENS)
    freed, promised = measured["none"] - measured["full"], declared["none"] - declared["full"]
    assert freed == pytest.approx(promised, rel=0.1)


@pytest.mark.parametrize("model_name", ["llama", "bert"])
@pytest.mark.parametrize("method", ["full", "lora", "dora"])
@pytest.mark.parametrize("number_format", ["fp32", "bf16", "bf16_amp"])
def test_selective_keeps_every_second_product_and_attention(
    model_name: str, method: str, number_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[dict[Any, Any]] = []
    original: Callable[[], tuple[Any, Any]] = kept_outputs.selective_contexts

    def watched() -> tuple[Any, Any]:
        contexts = original()
        held.append(contexts[0].storage)
        return contexts

    monkeypatch.setattr(kept_outputs, "selective_contexts", watched)
    model = built(model_name, method, number_format, "selective")
    with precision(number_format).autocast("cpu"):
        model(**a_batch(model, tokens=TOKENS))
    _model, arch = MODELS[model_name]()
    job = a_job(arch, method=method, rank=4)
    ledger = apply_passes(arch, job, a_config(recompute="selective", precision=number_format))
    (block,) = (group for group in ledger.groups if group.kind == "block")
    assert len(held) == block.repeats
    kept = sum(_bytes_in(storage) for storage in held)
    assert kept == round(block.repeats * block.kept_elements * ledger.compute_bytes * 2 * TOKENS)


def _bytes_in(storage: dict[Any, Any]) -> int:
    from torch.utils._pytree import tree_leaves

    values = [value for each in storage.values() for value in tree_leaves(each)]
    tensors = [getattr(value, "val", value) for value in values]
    # the kernel's two random-state scalars apart
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor) and t.ndim > 0)


@pytest.mark.parametrize("model_name", ["llama", "bert", "vit"])
@pytest.mark.parametrize("number_format", ["fp32", "bf16_amp"])
def test_offloaded_inputs_lie_on_the_host(model_name: str, number_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slots: list[host_inputs.Slot] = []

    class Watched(host_inputs.Slot):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            slots.append(self)

    monkeypatch.setattr(host_inputs, "Slot", Watched)
    model = built(model_name, "full", number_format, "offloaded")
    batch = a_batch(model, tokens=TOKENS)
    with precision(number_format).autocast("cpu"):
        model(**batch).loss.backward()
    _model, arch = MODELS[model_name]()
    ledger = apply_passes(arch, a_job(arch), a_config(recompute="offloaded", precision=number_format))
    (block,) = (group for group in ledger.groups if group.kind == "block")
    assert block.recomputed and block.inputs_on_host and len(slots) == block.repeats
    tokens = 2 * (arch.tokens_per_sample or TOKENS)
    on_host = sum(slot.host.numel() * slot.host.element_size() for slot in slots)
    assert on_host == block.repeats * block.input_elements * ledger.compute_bytes * tokens


def test_offloaded_lets_go_of_a_blocks_input_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between forward and backward no block input is alive but the embedding's output and the last block's."""
    import weakref

    inputs: list[weakref.ref[torch.Tensor]] = []
    original = host_inputs.HostInputs.checkpoint

    def watched(self: host_inputs.HostInputs, block: Any, hidden: torch.Tensor, *rest: Any) -> Any:
        inputs.append(weakref.ref(hidden))
        return original(self, block, hidden, *rest)

    monkeypatch.setattr(host_inputs.HostInputs, "checkpoint", watched)
    model = built("llama", "full", "fp32", "offloaded")
    loss = model(**a_batch(model)).loss
    assert [ref() for ref in inputs] == [None] * 3
    loss.backward()


@pytest.mark.parametrize("name", ["selective", "full", "offloaded"])
def test_recompute_of_a_model_without_blocks_is_an_error(name: str) -> None:
    with pytest.raises(ModelError, match="ST280"):
        recompute(name).attach(torch.nn.Linear(2, 2))
