"""Proves the update: clipping of the true gradient (case 23), the scaler's life (case 26), nothing applied on NaN."""

import pytest
import torch
from torch import nn

from stoker.core.errors import RunError
from stoker.core.lr_schedule import schedule_of
from stoker.engine.loss_scale import LossScale
from stoker.engine.update import Updater


def make(scaler: LossScale | None = None, max_norm: float = 1.0) -> tuple[nn.Parameter, Updater]:
    weight = nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    updater = Updater(optimizer, [weight], factor=schedule_of(10, 0.0, "linear"), max_grad_norm=max_norm, scaler=scaler)
    return weight, updater


def test_a_scaled_gradient_of_norm_half_is_not_clipped_and_logged_unscaled() -> None:
    weight, updater = make(LossScale(scale=65536.0))
    weight.grad = torch.full((4,), 0.25) * 65536.0  # norm 0.5
    outcome = updater.step(torch.tensor(1.0))
    assert float(outcome.norm) == pytest.approx(0.5)
    assert float(torch.linalg.vector_norm(weight.detach())) == pytest.approx(0.5)  # lr 1: the update is the gradient


def test_a_gradient_above_the_limit_is_scaled_to_it() -> None:
    weight, updater = make()
    weight.grad = torch.full((4,), 2.0)  # norm 4
    updater.step(torch.tensor(1.0))
    assert float(torch.linalg.vector_norm(weight.detach())) == pytest.approx(1.0, rel=1e-5)


def test_scaler_survives_a_resume_and_an_overflow_moves_neither_rate_nor_counter() -> None:
    saved = LossScale(scale=1024.0, growth_interval=2, good_steps=1).state()
    scaler = LossScale.from_state(saved)
    assert (scaler.scale, scaler.good_steps) == (1024.0, 1)
    weight, updater = make(scaler)
    weight.grad = torch.ones(4) * 1024.0
    assert updater.step(torch.tensor(1.0)).applied
    assert (scaler.scale, scaler.good_steps, updater.updates) == (2048.0, 0, 1)
    before, lr = weight.detach().clone(), updater.last_lr
    weight.grad = torch.tensor([float("inf"), 0.0, 0.0, 0.0])
    outcome = updater.step(torch.tensor(1.0))
    assert not outcome.applied and outcome.finite
    assert (scaler.scale, updater.updates, updater.last_lr) == (1024.0, 1, lr)
    assert torch.equal(weight.detach(), before) and weight.grad is None


def test_overflow_at_every_scale_is_an_error() -> None:
    scaler = LossScale(scale=2.0**-9)
    with pytest.raises(RunError, match="ST422"):
        for _attempt in range(3):
            scaler.overflowed(step=4)


@pytest.mark.parametrize("bad", ["loss", "gradient"])
def test_a_number_that_is_not_finite_leaves_the_weights_alone(bad: str) -> None:
    weight, updater = make()
    weight.grad = torch.ones(4) if bad == "loss" else torch.tensor([1.0, float("nan"), 1.0, 1.0])
    outcome = updater.step(torch.tensor(float("nan") if bad == "loss" else 1.0))
    assert outcome.finite is False and not outcome.applied
    assert torch.equal(weight.detach(), torch.zeros(4)) and updater.updates == 0


def test_a_fused_optimizer_with_found_inf_leaves_weights_state_and_step_alone() -> None:
    """What the CUDA path relies on, checked on torch's CPU kernel: no host decision, no change."""
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=True)
    weight.grad = torch.ones(4)
    optimizer.step()
    before = [weight.detach().clone(), *(value.clone() for value in optimizer.state[weight].values())]
    weight.grad = torch.full((4,), float("nan"))
    optimizer.found_inf = torch.ones(())  # type: ignore[attr-defined]
    optimizer.step()
    after = [weight.detach(), *optimizer.state[weight].values()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
