"""Proves DoRA's transient: one adapted linear at work holds the weight norm's matrices that the ledger declares."""

import weakref
from typing import Any

import pytest
import torch
from test_optimizers import wide_llama
from tiny_models import a_config, a_job
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stoker.techniques.adapter import adapter
from stoker.techniques.passes import apply_passes
from stoker.techniques.precision import precision


class LiveBytes(TorchDispatchMode):
    """Highest sum of storages made inside and still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._alive: dict[int, int] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor) and value.untyped_storage()._cdata not in self._alive:
                storage = value.untyped_storage()
                self._alive[storage._cdata] = storage.nbytes()
                weakref.finalize(storage, self._alive.pop, storage._cdata, None)
        self.peak = max(self.peak, sum(self._alive.values()))
        return result


@pytest.mark.parametrize("number_format", ["bf16", "bf16_amp"])
def test_the_weight_norm_of_the_largest_linear(number_format: str) -> None:
    model, arch = wide_llama()
    job = a_job(arch, method="dora", rank=4)
    model = adapter("dora").attach(model, job.tune)
    form = precision(number_format)
    form.convert(model)
    model.train()
    down = model.get_submodule("base_model.model.model.layers.0.mlp.down_proj")
    dtype = torch.bfloat16 if number_format == "bf16" else torch.float32
    token = torch.randn(1, 1, 128, dtype=dtype, requires_grad=True)
    with form.autocast("cpu"), LiveBytes() as live:
        down(token)
    block = apply_passes(arch, job, a_config(precision=number_format)).groups[1]
    # 4 x (128^2 + 4 x 128 x 64): identity, product, weight, scaled product, sum
    assert block.adapter_temp_bytes == 196_608
    assert live.peak == pytest.approx(block.adapter_temp_bytes, rel=0.15)
