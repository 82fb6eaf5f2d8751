"""On a CUDA device: the fused update is the eager one bit for bit, and placements do not change a bit either.

Needs deterministic algorithms (CUBLAS_WORKSPACE_CONFIG is set before CUDA starts). Run by `pytest -m gpu`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiers_doubles import PLACEMENTS, batches, llama, lora, same, train

from stoker.engine.tiers.adamw import Rule, Span, scalars_of, step_eager
from stoker.engine.tiers.lanes import CudaLanes
from stoker.engine.tiers.slab import HostSlab

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]


@pytest.fixture(autouse=True)
def _deterministic() -> Iterator[None]:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def _span(dtype: torch.dtype, device: str, bad: bool = False) -> Span:
    draw = torch.Generator().manual_seed(0)
    size = 1_000_003
    weight = (torch.randn(size, generator=draw) * torch.logspace(-38, 3, size)).to(dtype)
    grad = (torch.randn(size, generator=draw) * torch.logspace(-40, 4, size)).to(dtype)
    if bad:
        grad[::1000] = float("nan")
        grad[1::1000] = float("inf")
    first = torch.randn(size, generator=draw) * 1e-3
    second = torch.rand(size, generator=draw) * torch.logspace(-44, -2, size)
    low = torch.randint(-32768, 32768, (size,), generator=draw, dtype=torch.int16)
    return Span(
        weight=weight.to(device), grad=grad.to(device), first=first.to(device), second=second.to(device),
        remainder=low.to(device) if dtype == torch.bfloat16 else None,
    )  # fmt: skip


def _bits(span: Span) -> list[torch.Tensor]:
    found = [
        span.weight.cpu().view(torch.int16),
        span.first.cpu().view(torch.int32),
        span.second.cpu().view(torch.int32),
    ]
    return [*found, *([] if span.remainder is None else [span.remainder.cpu()])]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_fused_eager_and_cpu_agree_to_the_last_bit(dtype: torch.dtype, scale: float) -> None:
    from stoker.engine.tiers.adamw_kernel import step_fused

    scalars = scalars_of(Rule(), lr=1e-3, weight_decay=0.1, step=3, grad_scale=float(np.float32(scale)))
    spans = [_span(dtype, device) for device in ("cuda", "cuda", "cpu")]
    for step, span in zip((step_fused, step_eager, step_eager), spans, strict=True):
        for _round in range(5):
            step(span, scalars)
    fused, eager, cpu = map(_bits, spans)
    for a, b, c in zip(fused, eager, cpu, strict=True):
        assert torch.equal(a, b), (a != b).sum()
        assert torch.equal(b, c), (b != c).sum()


def test_a_nan_gradient_gives_nan_weights_in_both_forms() -> None:
    from stoker.engine.tiers.adamw_kernel import step_fused

    scalars = scalars_of(Rule(), lr=1e-3, weight_decay=0.1, step=1, grad_scale=1.0)
    for step in (step_fused, step_eager):
        span = _span(torch.bfloat16, "cuda", bad=True)
        step(span, scalars)
        assert span.weight[::1000].isnan().all()


def _on_gpu(model: Any, placement: str, folder: Path, count: int, **options: Any) -> Any:
    def make(step: int, micros: int) -> list[dict[str, torch.Tensor]]:
        return [{k: v.cuda() for k, v in b.items()} for b in batches(step, micros)]

    return train(model, PLACEMENTS[placement], folder, steps=50, count=count, make=make, device="cuda", **options)[:2]


@pytest.mark.parametrize("placement", list(PLACEMENTS)[1:])
def test_fifty_steps_on_streams_are_the_same_bits(placement: str, tmp_path: Path) -> None:
    for build, count in ((lambda: llama(dropout=0.1), 2), (lambda: lora(llama(tied=False)), 1)):
        losses, weights = _on_gpu(build(), "all on the device", tmp_path, count)
        found, moved = _on_gpu(build(), placement, tmp_path, count)
        assert found == losses
        assert same({k: v.cpu() for k, v in moved.items()}, {k: v.cpu() for k, v in weights.items()})


def test_without_clipping_too(tmp_path: Path) -> None:
    losses, _weights = _on_gpu(llama(), "all on the device", tmp_path, 2, max_grad_norm=0.0)
    for placement in ("everything in DRAM", "every second unit"):
        assert _on_gpu(llama(), placement, tmp_path, 2, max_grad_norm=0.0)[0] == losses


def test_a_slab_is_pinned_at_its_exact_size() -> None:
    """cudaHostRegister takes 1.5 GiB as 1.5 GiB; torch's allocator would take 2."""
    slab = HostSlab(3 << 29, pin=True)
    assert slab.pinned and slab.num_bytes == 3 << 29 and slab.tensor.is_pinned()
    part = slab.take(1 << 20)
    lanes = CudaLanes(torch.device("cuda", 0))
    card = torch.ones(1 << 20, dtype=torch.uint8, device="cuda")
    mark = lanes.down.submit(lambda: part.copy_(card, non_blocking=True) and None, after=[lanes.compute_mark()])
    assert mark is not None
    mark.synchronize()
    assert bool((part == 1).all())
    slab.close()
