"""Proves that our AdamW is torch's on fp32 masters to rounding, and the same bits however its pieces are cut."""

import numpy as np
import pytest
import torch

from stoker.engine.tiers.adamw import Rule, Span, scalars_of, step_eager, step_in_dram
from stoker.engine.tiers.split import join, split_into

_SIZE = 10_007  # no multiple of any vector width


def _fresh(dtype: torch.dtype, seed: int = 0) -> Span:
    draw = torch.Generator().manual_seed(seed)
    weight = torch.randn(_SIZE, generator=draw).mul_(0.05).to(dtype)
    zeros = torch.zeros(_SIZE)
    low = torch.zeros(_SIZE, dtype=torch.int16) if dtype == torch.bfloat16 else None
    return Span(weight=weight, grad=torch.empty_like(weight), first=zeros, second=zeros.clone(), remainder=low)


def _grads(dtype: torch.dtype, steps: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    scales = torch.logspace(-9, 1, _SIZE)
    return [(torch.randn(_SIZE, generator=draw) * scales).to(dtype) for _step in range(steps)]


def _run(dtype: torch.dtype, cuts: list[int], steps: int = 20, clip: float = 0.37) -> Span:
    span = _fresh(dtype)
    for number, grad in enumerate(_grads(dtype, steps), start=1):
        span.grad.copy_(grad)
        scalars = scalars_of(Rule(), lr=1e-3, weight_decay=0.1, step=number, grad_scale=float(np.float32(clip)))
        for start, stop in zip([0, *cuts], [*cuts, _SIZE], strict=True):
            step_eager(span.cut(start, stop), scalars)
    return span


def _bits(span: Span) -> list[torch.Tensor]:
    tensors = [span.weight.view(torch.int16), span.first.view(torch.int32), span.second.view(torch.int32)]
    return [*tensors, *([] if span.remainder is None else [span.remainder])]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("cuts", [[1], [7, 8, 4096], [2048, 4096, 6144], list(range(13, _SIZE, 1001))])
def test_pieces_do_not_change_a_bit(dtype: torch.dtype, cuts: list[int]) -> None:
    whole, cut = _run(dtype, []), _run(dtype, cuts)
    assert all(torch.equal(a, b) for a, b in zip(_bits(whole), _bits(cut), strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("fused", [False, True])
def test_it_is_torchs_adamw_on_fp32_masters(dtype: torch.dtype, fused: bool) -> None:
    """torch fuses multiply-adds and groups the quotient differently: 2 roundings a step, of what is at most lr.

    So after 20 steps of lr 1e-3 a master may differ by about 20 x 2^-24 x |p| + 20 x 4 x 2^-24 x lr: we allow 2e-7
    absolute and 3e-6 relative. A first moment may cancel, so it is held to 1e-6 of its gradient's scale.
    """
    ours, steps, clip = _run(dtype, []), 20, np.float32(0.37)
    master = torch.nn.Parameter(_fresh(dtype).weight.float())
    theirs = torch.optim.AdamW([master], lr=1e-3, weight_decay=0.1, fused=fused)
    for grad in _grads(dtype, steps):
        master.grad = grad.float() * float(clip)
        theirs.step()
    found = ours.weight if ours.remainder is None else join(ours.weight, ours.remainder)
    torch.testing.assert_close(found, master.data, rtol=3e-6, atol=2e-7)
    state = theirs.state[master]
    assert ((ours.first - state["exp_avg"]).abs() <= 1e-6 * torch.logspace(-9, 1, _SIZE)).all()
    torch.testing.assert_close(ours.second, state["exp_avg_sq"], rtol=3e-6, atol=1e-20)


def test_correctly_rounded_as_numpy_does_it_operation_by_operation() -> None:
    """The same formula in numpy's fp32, which rounds each operation: equal bits, so no operation is contracted."""
    f = np.float32
    scalars = scalars_of(Rule(), lr=3e-4, weight_decay=0.1, step=3, grad_scale=float(f(0.61)))
    span = _fresh(torch.float32, seed=4)
    span.first.copy_(torch.randn(_SIZE) * 1e-3)
    span.second.copy_(torch.rand(_SIZE) * 1e-6)
    span.grad.copy_(_grads(torch.float32, 1)[0])
    p, g, m, v = (t.numpy().copy() for t in (span.weight, span.grad, span.first, span.second))
    step_eager(span, scalars)
    g = g * f(scalars.grad_scale)
    m = m + (g - m) * f(scalars.blend1)
    v = v * f(scalars.beta2) + (g * g) * f(scalars.blend2)
    p = p * f(scalars.keep) - (m * f(scalars.step_size)) / (np.sqrt(v) * f(scalars.inverse_root2) + f(scalars.eps))
    for ours, numpys in ((span.first, m), (span.second, v), (span.weight, p)):
        assert (ours.numpy().view(np.int32) == numpys.view(np.int32)).all()


def test_the_dram_form_is_the_same() -> None:
    scalars = scalars_of(Rule(), lr=1e-3, weight_decay=0.01, step=1, grad_scale=1.0)
    one, many = _fresh(torch.bfloat16), _fresh(torch.bfloat16)
    for span in (one, many):
        span.grad.copy_(_grads(torch.bfloat16, 1)[0])
    step_eager(one, scalars)
    step_in_dram(many, scalars, lambda tasks: [task() for task in reversed(tasks)] and None)
    assert all(torch.equal(a, b) for a, b in zip(_bits(one), _bits(many), strict=True))


def test_a_tiny_update_that_bf16_would_drop_is_kept() -> None:
    """At 1.0 bf16 steps by 2^-7; a thousand updates of 1e-5 must move the master by 0.01."""
    span = Span(
        weight=torch.ones(1, dtype=torch.bfloat16),
        grad=torch.ones(1, dtype=torch.bfloat16),
        first=torch.zeros(1),
        second=torch.zeros(1),
        remainder=torch.zeros(1, dtype=torch.int16),
    )
    for number in range(1, 1001):
        step_eager(span, scalars_of(Rule(), lr=1e-5, weight_decay=0.0, step=number, grad_scale=1.0))
    assert span.remainder is not None
    assert join(span.weight, span.remainder).item() == pytest.approx(0.99, abs=3e-5)  # 1000 roundings of 2^-25


def test_padding_of_zeros_stays_zero() -> None:
    span = _fresh(torch.bfloat16)
    span.weight.zero_()
    span.grad.zero_()
    step_eager(span, scalars_of(Rule(), lr=1e-3, weight_decay=0.1, step=1, grad_scale=1.0))
    assert not span.weight.any() and not span.first.any() and span.remainder is not None and not span.remainder.any()


def test_split_of_a_nan_gradient_is_seen() -> None:
    weight, low = torch.ones(1, dtype=torch.bfloat16), torch.zeros(1, dtype=torch.int16)
    split_into(torch.tensor([float("nan")]), weight, low)
    assert weight.isnan().all()
