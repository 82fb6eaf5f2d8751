"""Proves that every loss kernel gives the ordinary loss and gradients, and that the bytes it declares are the peak.

Live bytes are counted by a dispatch mode that follows storages, so a claim about memory needs no GPU.
"""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stoker.techniques.loss import LOSSES, loss
from stoker.techniques.loss.chunked import CHUNK_TOKENS
from stoker.techniques.loss.foreign import ForeignLoss
from stoker.techniques.protocols import LossTechnique

HIDDEN = 8
BUILT = tuple(t for t in LOSSES if t.needs_package is None and not isinstance(t, ForeignLoss))  # runs on a CPU


class LiveBytes(TorchDispatchMode):
    """Bytes of storages made under it: `largest` tensor and highest sum alive at once."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = self.peak = self.largest = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {
            leaf.untyped_storage()._cdata
            for leaf in tree_leaves((args, kwargs or {}))
            if isinstance(leaf, torch.Tensor)
        }
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf, known)
        return result

    def _count(self, tensor: torch.Tensor, known: set[int]) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in known or key in self._seen:
            return
        self._seen.add(key)
        self.alive += size
        self.peak = max(self.peak, self.alive)
        self.largest = max(self.largest, size)
        weakref.finalize(storage, self._freed, key, size)

    def _freed(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.alive -= size


def a_problem(
    tokens: int, vocab: int, dtype: torch.dtype, *, bias: bool = False, ignored: float = 0.25
) -> tuple[torch.Tensor, nn.Linear, torch.Tensor]:
    torch.manual_seed(0)
    head = nn.Linear(HIDDEN, vocab, bias=bias).to(dtype)
    hidden = torch.randn(2, tokens // 2, HIDDEN).to(dtype).requires_grad_(True)
    labels = torch.randint(0, vocab, (2, tokens // 2))
    labels[torch.rand(labels.shape) < ignored] = -100
    return hidden, head, labels


def gradients(
    technique: Callable[..., torch.Tensor], problem: tuple[torch.Tensor, nn.Module, torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    hidden, head, labels = problem
    for tensor in (hidden, *head.parameters()):
        tensor.grad = None
    value = technique(hidden, head, labels)
    (value * 0.37).backward()
    assert hidden.grad is not None
    return (value.detach(), hidden.grad.clone(), *(p.grad.clone() for p in head.parameters() if p.grad is not None))


def reference(hidden: torch.Tensor, head: nn.Module, labels: torch.Tensor) -> torch.Tensor:
    logits = head(hidden).float()
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")


@pytest.mark.parametrize("technique", BUILT, ids=lambda t: t.name)
@pytest.mark.parametrize("tokens", [2, 64, 2500])
@pytest.mark.parametrize("bias", [False, True])
def test_loss_and_gradients_are_the_ordinary_ones_in_fp32(technique: LossTechnique, tokens: int, bias: bool) -> None:
    problem = a_problem(tokens, 50, torch.float32, bias=bias)
    ours, theirs = gradients(technique.language_model_loss, problem), gradients(reference, problem)
    assert len(ours) == len(theirs) == (4 if bias else 3)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert ours[0].dtype == torch.float32 and ours[0].ndim == 0


@pytest.mark.parametrize("technique", BUILT, ids=lambda t: t.name)
def test_in_bf16_within_its_rounding(technique: LossTechnique) -> None:
    problem = a_problem(2500, 50, torch.bfloat16)
    ours, theirs = gradients(technique.language_model_loss, problem), gradients(reference, problem)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-5, atol=1e-3)
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        torch.testing.assert_close(a, b, rtol=2**-7, atol=2**-7 * float(b.float().abs().max()))


@pytest.mark.parametrize("technique", BUILT, ids=lambda t: t.name)
def test_under_autocast(technique: LossTechnique) -> None:
    problem = a_problem(64, 50, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = gradients(technique.language_model_loss, problem), gradients(reference, problem)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=2**-6, atol=2**-6 * float(b.abs().max()))


@pytest.mark.parametrize("technique", BUILT, ids=lambda t: t.name)
def test_nothing_to_learn_from_is_a_zero_with_zero_gradients(technique: LossTechnique) -> None:
    hidden, head, _labels = a_problem(64, 50, torch.float32)
    value, *grads = gradients(technique.language_model_loss, (hidden, head, torch.full((2, 32), -100)))
    assert value == 0 and all(torch.count_nonzero(g) == 0 for g in grads)


class Wrapped(nn.Module):
    """A head that is no plain linear, as an adapter makes it."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.inner(hidden) * 1.5  # type: ignore[no-any-return]


def test_chunks_work_through_any_head() -> None:
    hidden, head, labels = a_problem(2500, 50, torch.float32)
    problem = (hidden, Wrapped(head), labels)
    for a, b in zip(
        gradients(loss("chunked").language_model_loss, problem), gradients(reference, problem), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_a_frozen_head_gets_no_gradient() -> None:
    hidden, head, labels = a_problem(64, 50, torch.float32)
    head.requires_grad_(False)
    ours = gradients(loss("chunked").language_model_loss, (hidden, head, labels))
    assert len(ours) == 2
    torch.testing.assert_close(ours[1], gradients(reference, (hidden, head, labels))[1])


@pytest.mark.parametrize("head_kind", ["plain", "wrapped"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_full_logits_never_exist_in_chunks(head_kind: str, dtype: torch.dtype) -> None:
    tokens, vocab = 4 * CHUNK_TOKENS, 300
    hidden, head, labels = a_problem(tokens, vocab, dtype, ignored=0.0)
    problem = (hidden, head if head_kind == "plain" else Wrapped(head), labels)
    meter = LiveBytes()
    with meter:
        gradients(loss("chunked").language_model_loss, problem)
    assert meter.largest <= 4 * CHUNK_TOKENS * vocab


@pytest.mark.parametrize("technique", BUILT, ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_declared_bytes_are_the_measured_peak(technique: LossTechnique, dtype: torch.dtype) -> None:
    tokens, vocab = 4 * CHUNK_TOKENS, 300
    problem = a_problem(tokens, vocab, dtype, ignored=0.0)
    meter = LiveBytes()
    with meter:
        gradients(technique.language_model_loss, problem)
    small = tokens * (HIDDEN * 4 * 3 + 64) + vocab * HIDDEN * 4 * 3  # hidden states, weights and their gradients
    declared = technique.logits_bytes(tokens, vocab, dtype.itemsize)
    assert declared * 0.75 <= meter.peak <= declared + small
