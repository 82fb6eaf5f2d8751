"""Proves that fp8 products take what the ledger declares, keep what bf16 keeps, and learn without fp8 units.

CPU, where torchao emulates the products; needs torchao.
"""

from importlib.util import find_spec

import pytest
import torch
from test_optimizers import wide_llama
from tiny_models import a_batch, a_config, a_job, ledger_saved_bytes, ledger_weight_bytes, param_bytes, saved_bytes_of

from stoker.core.errors import EnvironmentProblem
from stoker.techniques.adapter import adapter
from stoker.techniques.optimizer import optimizer
from stoker.techniques.passes import apply_passes
from stoker.techniques.precision import fp8, precision

needs_torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")


@needs_torchao
@pytest.mark.parametrize("method", ["full", "lora"])
def test_block_linears_multiply_in_fp8_and_nothing_kept_is_smaller(method: str) -> None:
    saved, declared = {}, {}
    for name in ("bf16", "fp8"):
        model, arch = wide_llama()
        job = a_job(arch, method=method, rank=4)
        model = adapter(method).attach(model, job.tune)
        precision(name).convert(model)
        ledger = apply_passes(arch, job, a_config(precision=name))
        assert param_bytes(model) == ledger_weight_bytes(ledger)
        model.train()
        saved[name] = saved_bytes_of(model, a_batch(model, tokens=44), precision(name))
        declared[name] = ledger_saved_bytes(ledger, samples=2, tokens=44)
        narrow = [m for m in model.modules() if type(m).__name__ == "Float8Linear"]
        (block,) = (group for group in ledger.groups if group.kind == "block")
        assert len(narrow) == (block.repeats * len(block.linears) if name == "fp8" else 0)
        assert sum(m.in_features for m in narrow) == block.repeats * block.matmul_cast_elements
    # a frozen linear's input is kept under fp8 only: torchao saves it whether or not the weight learns
    # (but what the first block's projections read, for nothing below an adapter learns)
    first = 2 * 44 * 64 * 2 if method == "lora" else 0
    assert saved["fp8"] - saved["bf16"] == pytest.approx(declared["fp8"] - declared["bf16"] - first, abs=64)
    assert (declared["fp8"] > declared["bf16"]) == (method == "lora")


@needs_torchao
@pytest.mark.parametrize("method", ["full", "lora"])
def test_it_learns(method: str) -> None:
    form = precision("fp8")
    model, arch = wide_llama()
    model = adapter(method).attach(model, a_job(arch, method=method, rank=4).tune)
    form.convert(model)
    params = [p for p in model.parameters() if p.requires_grad]
    stepper = form.wrap_optimizer(optimizer("adamw"), [{"params": params, "lr": 1e-3, "weight_decay": 0.0}])
    batch, losses = a_batch(model), []
    for _ in range(8):
        value = model(**batch).loss
        value.backward()
        stepper.step()
        stepper.zero_grad()
        losses.append(float(value.detach()))
    assert losses[-1] < losses[0]


def test_without_torchao_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp8, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match="ST588"):
        precision("fp8").convert(torch.nn.Linear(2, 2))
