"""Proves that 4-bit weights take what the ledger declares, that a quantised model learns, and what it keeps.

CPU; needs bitsandbytes. The public truth for whole models is in tests/golden/test_quantised_weights.py.
"""

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from test_optimizers import wide_llama
from tiny_models import (
    BUILDABLE_PRECISIONS,
    MODELS,
    a_batch,
    a_config,
    a_job,
    ledger_saved_bytes,
    ledger_weight_bytes,
    saved_bytes_of,
)

from stoker.techniques.adapter import adapter
from stoker.techniques.optimizer import optimizer
from stoker.techniques.passes import apply_passes
from stoker.techniques.precision import precision
from stoker.techniques.recompute import recompute

pytestmark = [
    pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed"),
]


def stored_bytes(model: torch.nn.Module) -> int:
    """Bytes of parameters and of the scales and code books beside the 4-bit ones; peft's frozen copies apart."""
    total = 0
    for name, param in model.named_parameters():
        if ".original_module." in name:
            continue
        total += param.numel() * param.element_size()
        state = getattr(param, "quant_state", None)
        while state is not None:
            tensors = (state.absmax, state.code, getattr(state, "offset", None))
            total += sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))
            state = getattr(state, "state2", None)
    return total


def built(model_name: str, form: Any, **tune: Any) -> tuple[torch.nn.Module, Any]:
    model, arch = wide_llama() if model_name == "wide" else MODELS[model_name]()
    job = a_job(arch, method="qlora", rank=4, **tune)
    wrapped = adapter("qlora").attach(model, job.tune)
    form.convert(wrapped)
    return wrapped, apply_passes(arch, job, a_config(precision=form.name))


@pytest.mark.parametrize("number_format", BUILDABLE_PRECISIONS, ids=lambda p: p.name)
@pytest.mark.parametrize("double_quant", [False, True])
@pytest.mark.parametrize("unquantised", ["16bit", "fp32"])
@pytest.mark.parametrize("model_name", ["wide", "llama-tied", "bert"])
def test_stored_bytes(model_name: str, unquantised: str, double_quant: bool, number_format: Any) -> None:
    model, ledger = built(model_name, number_format, double_quant=double_quant, unquantised=unquantised)
    assert stored_bytes(model) == round(ledger_weight_bytes(ledger))
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == ledger.num_trainable


@pytest.mark.parametrize("number_format", ["fp32", "bf16", "bf16_amp", "fp16_amp"])
@pytest.mark.parametrize("unquantised", ["16bit", "fp32"])
@pytest.mark.parametrize("model_name", ["wide", "bert"])
def test_a_quantised_model_learns(model_name: str, unquantised: str, number_format: str) -> None:
    form = precision(number_format)
    model, _ledger = built(model_name, form, unquantised=unquantised)
    params = [p for p in model.parameters() if p.requires_grad]
    stepper = form.wrap_optimizer(optimizer("adamw"), [{"params": params, "lr": 1e-2, "weight_decay": 0.0}])
    batch, losses = a_batch(model), []
    for _ in range(8):
        with form.autocast("cpu"):
            value = model(**batch).loss
        value.backward()
        stepper.step()
        stepper.zero_grad()
        losses.append(float(value.detach()))
    assert losses[-1] < losses[0]


def test_a_product_differs_from_the_plain_one_by_no_more_than_nf4_does() -> None:
    """nf4's mean error over normal weights is 7 to 8 % of their deviation (2305.14314, appendix E: about 0.07)."""
    plain, arch = wide_llama()
    weight = plain.get_submodule("model.layers.0.mlp.up_proj").weight.detach().clone()
    model = adapter("qlora").attach(plain, a_job(arch, method="qlora", rank=4).tune)
    precision("fp32").convert(model)
    layer = model.get_submodule("base_model.model.model.layers.0.mlp.up_proj.base_layer")
    rows = torch.eye(64)
    error = (layer(rows).T - weight).abs().mean() / weight.std()
    assert 0.05 < float(error) < 0.09


@pytest.mark.parametrize("number_format", ["bf16", "bf16_amp"])
@pytest.mark.parametrize("unquantised", ["16bit", "fp32"])
def test_saved_activations(unquantised: str, number_format: str) -> None:
    """Blocks' share, as what full recomputation would free."""
    form, measured, declared = precision(number_format), {}, {}
    for name in ("none", "full"):
        model, _ = built("wide", form, unquantised=unquantised)
        recompute(name).attach(model)
        model.train()
        measured[name] = saved_bytes_of(model, a_batch(model, tokens=44), form)
        _model, arch = wide_llama()
        job = a_job(arch, method="qlora", rank=4, unquantised=unquantised)
        ledger = apply_passes(arch, job, a_config(precision=number_format, recompute=name))
        declared[name] = ledger_saved_bytes(ledger, samples=2, tokens=44)
    freed, promised = measured["none"] - measured["full"], declared["none"] - declared["full"]
    assert freed == pytest.approx(promised, rel=0.05)
