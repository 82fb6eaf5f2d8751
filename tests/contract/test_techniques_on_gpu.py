"""Proves on a CUDA device what the CPU tests cannot: peaks as the allocator sees them, fused steps, mixed-width sums.

Needs torch alone; run with `pytest -m gpu tests/contract/test_techniques_on_gpu.py`.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional

from stoker.techniques.loss import LOSSES, loss
from stoker.techniques.loss.chunks import _add_product
from stoker.techniques.optimizer import OPTIMIZERS, optimizer
from stoker.techniques.precision import precision
from stoker.techniques.precision.masters import MasterWeightOptimizer
from stoker.techniques.protocols import LossTechnique, Optimizer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
HIDDEN, VOCAB, TOKENS = 256, 32_000, 8192


def a_problem(dtype: torch.dtype) -> tuple[torch.Tensor, nn.Linear, torch.Tensor]:
    torch.manual_seed(0)
    head = nn.Linear(HIDDEN, VOCAB, bias=False, device="cuda", dtype=dtype)
    hidden = torch.randn(1, TOKENS, HIDDEN, device="cuda", dtype=dtype, requires_grad=True)
    return hidden, head, torch.randint(0, VOCAB, (1, TOKENS), device="cuda")


@pytest.mark.parametrize("technique", LOSSES, ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_declared_logits_bytes_hold_the_peak(technique: LossTechnique, dtype: torch.dtype) -> None:
    hidden, head, labels = a_problem(dtype)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    technique.language_model_loss(hidden, head, labels).backward()
    peak = torch.cuda.max_memory_allocated() - before
    declared = technique.logits_bytes(TOKENS, VOCAB, dtype.itemsize)
    beside = 3 * 4 * (TOKENS * HIDDEN + VOCAB * HIDDEN)  # hidden states, weight, their gradients and the fp32 sum
    assert declared * 0.7 <= peak <= declared + beside, (
        f"declared {declared:,.0f}, beside {beside:,.0f}, peak {peak:,.0f}"
    )


def test_chunked_equals_the_ordinary_loss_in_bf16() -> None:
    hidden, head, labels = a_problem(torch.bfloat16)
    results = []
    for kernel in (loss("eager").language_model_loss, loss("chunked").language_model_loss):
        hidden.grad = head.weight.grad = None
        value = kernel(hidden, head, labels) / TOKENS
        value.backward()
        assert hidden.grad is not None and head.weight.grad is not None
        results.append((value.detach(), hidden.grad.float(), head.weight.grad.float()))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-5, atol=1e-5)
    for a, b in zip(results[0][1:], results[1][1:], strict=True):
        assert functional.cosine_similarity(a.flatten(), b.flatten(), dim=0) > 0.9999


def test_products_accumulate_in_fp32() -> None:
    torch.manual_seed(0)
    left = torch.randn(64, 128, device="cuda", dtype=torch.bfloat16)
    right = torch.randn(128, 32, device="cuda", dtype=torch.bfloat16)
    total = torch.ones(64, 32, device="cuda")
    _add_product(total, left, right)
    exact = 1.0 + left.double() @ right.double()
    assert float((total.double() - exact).abs().max()) < 1e-3  # a product rounded to bf16 would be off by 0.1


@pytest.mark.parametrize("technique", OPTIMIZERS[:2], ids=lambda t: t.name)
def test_fused_masters_are_bitwise_torchs_own(technique: Optimizer) -> None:
    torch.manual_seed(0)
    start = torch.randn(1000, 33, device="cuda").to(torch.bfloat16)
    narrow, wide = nn.Parameter(start.clone()), nn.Parameter(start.float())
    ours = precision("bf16").wrap_optimizer(technique, [{"params": [narrow], "lr": 1e-2, "weight_decay": 0.1}])
    theirs = technique.build([{"params": [wide], "lr": 1e-2, "weight_decay": 0.1}])
    assert isinstance(ours, MasterWeightOptimizer) and theirs.defaults["fused"]
    for _ in range(5):
        grad = torch.randn_like(start)
        narrow.grad, wide.grad = grad.clone(), grad.float()
        ours.step()
        theirs.step()
    assert torch.equal(ours.masters[narrow], wide.detach())


def test_a_step_allocates_state_and_no_second_copy_of_the_gradients() -> None:
    """Case 4: the state appears in step 1; the transient of a step is one piece, 256 MiB, however large the model."""
    count = 512 * 2**20
    params = [nn.Parameter(torch.zeros(count // 8, device="cuda", dtype=torch.bfloat16)) for _ in range(8)]
    stepper = precision("bf16").wrap_optimizer(
        optimizer("adamw"), [{"params": params, "lr": 1e-3, "weight_decay": 0.0}]
    )
    for p in params:
        p.grad = torch.zeros_like(p)
    before = torch.cuda.memory_allocated()
    stepper.step()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before == pytest.approx(8 * count, rel=0.001)
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    stepper.step()
    assert torch.cuda.max_memory_allocated() - held <= 300 * 2**20
