"""Proves that fp32 masters beside bf16 weights step exactly as torch's own optimizer on fp32 parameters would, that
gradients of several micro-batches are rounded once, and that the state survives a round trip. CPU, torch.
"""

from importlib.util import find_spec

import pytest
import torch

from stoker.techniques.optimizer import OPTIMIZERS, optimizer
from stoker.techniques.precision import masters, precision
from stoker.techniques.precision.accumulate import GradientAccumulator
from stoker.techniques.precision.masters import MasterWeightOptimizer
from stoker.techniques.protocols import Optimizer

pytestmark = pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU")
BUILDABLE = [
    t for t in OPTIMIZERS if t.name in ("adamw", "sgd", "adafactor", "lion", "muon") or find_spec("bitsandbytes")
]


def some_params(seed: int = 0) -> list[torch.nn.Parameter]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=draw)) for shape in ((7, 5), (11,), (3, 2, 2))]


def some_grads(step: int) -> list[torch.Tensor]:
    return [p.detach().to(torch.bfloat16) for p in some_params(100 + step)]


def groups_of(params: list[torch.nn.Parameter]) -> list[dict[str, object]]:
    return [
        {"params": params[:1], "lr": 1e-2, "weight_decay": 0.1},
        {"params": params[1:], "lr": 3e-3, "weight_decay": 0.0},
    ]


def wrapped(technique: Optimizer, params: list[torch.nn.Parameter]) -> MasterWeightOptimizer:
    result = precision("bf16").wrap_optimizer(technique, groups_of(params))
    assert isinstance(result, MasterWeightOptimizer)
    return result


@pytest.mark.parametrize("technique", BUILDABLE, ids=lambda t: t.name)
@pytest.mark.parametrize("piece", [masters.PIECE_ELEMENTS, 12])
def test_bitwise_equal_to_the_optimizer_on_fp32(
    technique: Optimizer, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masters, "PIECE_ELEMENTS", piece)
    start = [p.detach().to(torch.bfloat16) for p in some_params()]
    reference = [torch.nn.Parameter(p.float()) for p in start]
    narrow = [torch.nn.Parameter(p.clone()) for p in start]
    ours, theirs = wrapped(technique, narrow), technique.build(groups_of(reference))
    for step in range(5):
        for p, r, grad in zip(narrow, reference, some_grads(step), strict=True):
            p.grad, r.grad = grad.clone(), grad.float()
        for group in (*ours.param_groups, *theirs.param_groups):
            group["lr"] *= 0.9  # what a schedule does
        ours.step()
        theirs.step()
    for p, r in zip(narrow, reference, strict=True):
        assert torch.equal(ours.masters[p], r.detach())
        assert torch.equal(p.detach(), r.detach().to(torch.bfloat16))


def test_small_updates_survive_in_the_master_and_would_not_without() -> None:
    results = {}
    for name in ("bf16", "bf16_pure"):
        param = torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
        stepper = precision(name).wrap_optimizer(
            optimizer("adamw"), [{"params": [param], "lr": 1e-3, "weight_decay": 0.0}]
        )
        for _ in range(20):
            param.grad = torch.ones_like(param)
            stepper.step()
        results[name] = float(param.detach().float().mean())
    assert results["bf16"] == pytest.approx(1.0 - 20e-3, abs=0.004)
    assert results["bf16_pure"] == 1.0  # each update of 0.001 is below half of bf16's spacing under 1.0


def test_fp32_parameters_are_stepped_directly_beside_masters() -> None:
    adapter = torch.nn.Parameter(torch.ones(4))
    base = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    stepper = wrapped_pair(adapter, base)
    for _ in range(3):
        adapter.grad, base.grad = torch.ones(4), torch.ones(4, dtype=torch.bfloat16)
        stepper.step()
    assert list(stepper.masters) == [base]
    assert torch.equal(adapter.detach(), stepper.masters[base])


def wrapped_pair(adapter: torch.nn.Parameter, base: torch.nn.Parameter) -> MasterWeightOptimizer:
    groups = [{"params": [adapter, base], "lr": 1e-2, "weight_decay": 0.0}]
    result = precision("bf16").wrap_optimizer(optimizer("adamw"), groups)
    assert isinstance(result, MasterWeightOptimizer)
    return result


def test_a_gradient_factor_is_applied_in_fp32() -> None:
    grad = torch.full((4,), 1.0, dtype=torch.bfloat16)
    factor = torch.tensor(0.3001)  # bf16 would round this to 0.3008
    param, reference = torch.nn.Parameter(torch.zeros(4, dtype=torch.bfloat16)), torch.nn.Parameter(torch.zeros(4))
    sgd = optimizer("sgd")
    ours = precision("bf16").wrap_optimizer(sgd, [{"params": [param], "lr": 1.0, "weight_decay": 0.0}])
    theirs = sgd.build([{"params": [reference], "lr": 1.0, "weight_decay": 0.0}])
    assert isinstance(ours, MasterWeightOptimizer)
    param.grad, reference.grad, ours.grad_scale = grad, grad.float() * factor, factor
    ours.step()
    theirs.step()
    assert torch.equal(ours.masters[param], reference.detach())
    assert ours.grad_scale is None


def test_parameters_without_gradient_stay_and_keep_no_state() -> None:
    params = [torch.nn.Parameter(p.detach().to(torch.bfloat16)) for p in some_params()]
    before = [p.detach().clone() for p in params]
    stepper = wrapped(optimizer("adamw"), params)
    params[0].grad = torch.ones_like(params[0])
    stepper.step()
    assert not torch.equal(params[0], before[0])
    assert torch.equal(params[1], before[1]) and torch.equal(params[2], before[2])
    assert all(len(inner.state) == 1 for inner in stepper.inner)


@pytest.mark.parametrize("technique", BUILDABLE, ids=lambda t: t.name)
def test_state_round_trip_continues_bitwise(technique: Optimizer) -> None:
    def take(stepper: torch.optim.Optimizer, params: list[torch.nn.Parameter], steps: range) -> None:
        for step in steps:
            for p, grad in zip(params, some_grads(step), strict=True):
                p.grad = grad.clone()
            stepper.step()

    params = [torch.nn.Parameter(p.detach().to(torch.bfloat16)) for p in some_params()]
    first = wrapped(technique, params)
    take(first, params, range(3))
    copies = [torch.nn.Parameter(p.detach().clone()) for p in params]
    second = wrapped(technique, copies)
    state = {
        "inner": [copied(inner) for inner in first.state_dict()["inner"]],
        "masters": [m.clone() for m in first.state_dict()["masters"]],
    }
    second.load_state_dict(state)
    take(first, params, range(3, 6))
    take(second, copies, range(3, 6))
    for p, c in zip(params, copies, strict=True):
        assert torch.equal(p, c) and torch.equal(first.masters[p], second.masters[c])


def copied(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {k: copied(v) for k, v in value.items()}
    return [copied(v) for v in value] if isinstance(value, list) else value


def test_state_of_another_model_is_refused() -> None:
    params = [torch.nn.Parameter(p.detach().to(torch.bfloat16)) for p in some_params()]
    stepper = wrapped(optimizer("adamw"), params)
    other = wrapped(optimizer("adamw"), params[:2])
    with pytest.raises(ValueError, match="another model"):
        other.load_state_dict(stepper.state_dict())


def test_gradients_of_micro_batches_are_rounded_once() -> None:
    param = torch.nn.Parameter(torch.zeros(1000, dtype=torch.bfloat16))
    draw = torch.Generator().manual_seed(0)
    pieces = [torch.randn(1000, generator=draw).to(torch.bfloat16) for _ in range(16)]
    accumulator = GradientAccumulator([param], 16)
    for piece in pieces:
        param.grad = piece.clone()
        accumulator.add()
        assert param.grad is None
    assert accumulator.state_bytes() == 4 * param.numel()  # what the ledger declares beside the gradient
    accumulator.finish()
    assert param.grad is not None
    exact = torch.stack([p.float() for p in pieces]).sum(0)
    assert torch.equal(param.grad, exact.to(torch.bfloat16))
    naive = pieces[0].clone()
    for piece in pieces[1:]:
        naive += piece
    assert not torch.equal(naive, exact.to(torch.bfloat16))
    assert accumulator.state_bytes() == 0


def test_one_micro_batch_or_fp32_needs_no_accumulator() -> None:
    narrow = torch.nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
    wide = torch.nn.Parameter(torch.zeros(4))
    for param, micro_batches in ((narrow, 1), (wide, 4)):
        param.grad = torch.ones_like(param)
        accumulator = GradientAccumulator([param], micro_batches)
        accumulator.add()
        assert param.grad is not None and accumulator.state_bytes() == 0
        accumulator.finish()
        assert torch.equal(param.grad, torch.ones_like(param))
