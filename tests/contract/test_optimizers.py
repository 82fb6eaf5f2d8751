"""Proves that every optimizer's declared state is what it holds after one step, and that it takes the step it says.

Over a tiny encoder, a decoder wide enough for 8-bit states (tensors of 4,096 elements and more), LoRA, and every
precision; bitsandbytes' optimizers where it is installed (on a CPU their paged states are ordinary memory).
"""

import copy
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
import transformers
from tiny_models import BUILDABLE_PRECISIONS, MODELS, VOCAB, a_batch, a_config, a_job

from stoker.catalogue.models.api import arch_from_config
from stoker.core.errors import EnvironmentProblem
from stoker.core.ledger import ModelArch
from stoker.techniques.adapter import adapter
from stoker.techniques.optimizer import OPTIMIZERS, low_bit, optimizer
from stoker.techniques.passes import apply_passes
from stoker.techniques.precision import precision
from stoker.techniques.precision.masters import MasterWeightOptimizer

pytestmark = pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU")
STEP_COUNTER_BYTES = 4
LOW_BIT = ("adamw_8bit", "paged_adamw", "paged_adamw_8bit")


def wide_llama() -> tuple[torch.nn.Module, ModelArch]:
    """Two blocks of width 64: query, output and feed-forward matrices reach 4,096 elements, key and value do not."""
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
        use_cache=False,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    return model, arch_from_config(config.to_dict(), task="causal_lm", num_labels=None, name="wide")


def needs(name: str) -> None:
    if name in LOW_BIT and find_spec("bitsandbytes") is None:
        pytest.skip("bitsandbytes is not installed")


def a_group(model: torch.nn.Module, *, lr: float = 1e-3) -> dict[str, Any]:
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return {"params": [p for _n, p in named], "names": [n for n, _p in named], "lr": lr, "weight_decay": 0.0}


@pytest.mark.parametrize("number_format", BUILDABLE_PRECISIONS, ids=lambda p: p.name)
@pytest.mark.parametrize("technique", OPTIMIZERS, ids=lambda o: o.name)
@pytest.mark.parametrize("method", ["full", "lora", "dora"])
@pytest.mark.parametrize("model_name", ["wide", "bert"])
def test_state_bytes_exist_after_one_step_and_not_before(
    technique: Any, number_format: Any, method: str, model_name: str
) -> None:
    needs(technique.name)
    model, arch = wide_llama() if model_name == "wide" else MODELS["bert"]()
    job = a_job(arch, optimizer=technique.name, method=method, rank=64)
    ledger = apply_passes(arch, job, a_config(precision=number_format.name))
    model = adapter(method).attach(model, job.tune)
    number_format.convert(model)
    group = a_group(model)
    stepper = number_format.wrap_optimizer(technique, [group])
    assert sum(map(_state_bytes, _leaves(stepper))) == 0
    for p in group["params"]:
        p.grad = torch.ones_like(p)
    grads = sum(p.grad.numel() * p.grad.element_size() for p in group["params"])
    assert grads == sum(
        g.repeats * (g.base_trainable * g.grad_bytes_per_param + g.adapter_params * g.adapter_bytes_per_param)
        for g in ledger.groups
    )
    stepper.step()
    held, declared = sum(map(_state_bytes, _leaves(stepper))), sum(g.repeats * g.state_bytes for g in ledger.groups)
    if technique.name == "adafactor" and model_name == "bert" and method == "full":
        # position and segment tables are declared in full: 66 x 32 elements for 66 + 2 x 32
        width = 4 if precision(number_format.name).name != "bf16_pure" else 2
        assert declared - held == width * (66 * 32 - 66 - 2 * 32)
    else:
        assert held == declared
    masters = stepper.masters.values() if isinstance(stepper, MasterWeightOptimizer) else ()
    assert sum(m.numel() * m.element_size() for m in masters) == sum(
        g.repeats * g.base_trainable * g.master_bytes_per_param for g in ledger.groups
    )


def _leaves(stepper: Any) -> Iterator[torch.optim.Optimizer]:
    inner = getattr(stepper, "inner", ())
    if not inner:
        yield stepper
    for each in inner:
        yield from _leaves(each)


def _state_bytes(stepper: torch.optim.Optimizer) -> int:
    """Bytes of state tensors, step counters (one 4-byte scalar a tensor) and shared code books apart."""
    total = 0
    for state in stepper.state.values():
        for key, value in state.items():
            if key == "step":
                assert not isinstance(value, torch.Tensor) or value.numel() * value.element_size() == STEP_COUNTER_BYTES
            elif isinstance(value, torch.Tensor) and not key.startswith("qmap"):
                total += value.numel() * value.element_size()
    return total


@pytest.mark.parametrize("technique", OPTIMIZERS, ids=lambda o: o.name)
@pytest.mark.parametrize("number_format", ["fp32", "bf16"])
def test_every_optimizer_learns(technique: Any, number_format: str) -> None:
    needs(technique.name)
    model, _arch = wide_llama()
    form = precision(number_format)
    form.convert(model)
    stepper = form.wrap_optimizer(technique, [a_group(model, lr=1e-3 if technique.name != "sgd" else 1e-1)])
    batch, losses = a_batch(model), []
    for _ in range(8):
        value = model(**batch).loss
        value.backward()
        stepper.step()
        stepper.zero_grad()
        losses.append(float(value.detach()))
    assert losses[-1] < losses[0] - 0.05


@pytest.mark.parametrize("technique", OPTIMIZERS, ids=lambda o: o.name)
@pytest.mark.parametrize("number_format", ["fp32", "bf16"])
def test_a_reloaded_optimizer_goes_on_as_the_first_would(technique: Any, number_format: str) -> None:
    needs(technique.name)
    form, steppers, models = precision(number_format), [], []
    for _ in range(2):
        model, _arch = wide_llama()
        form.convert(model)
        models.append(model)
        steppers.append(form.wrap_optimizer(technique, [a_group(model)]))
    _step(models[0], steppers[0], seed=1)
    models[1].load_state_dict(models[0].state_dict())
    steppers[1].load_state_dict(copy.deepcopy(steppers[0].state_dict()))
    for model, stepper in zip(models, steppers, strict=True):
        _step(model, stepper, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))


def _step(model: torch.nn.Module, stepper: torch.optim.Optimizer, *, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=draw).to(p.dtype)
    stepper.step()


def test_lion_steps_by_the_sign_of_the_average() -> None:
    """Two steps by hand (2302.06675, algorithm 2): 1 - 0.1, then the sign of 0.9 x 0.01 - 0.1 x 2 turns it back."""
    param = torch.nn.Parameter(torch.tensor([1.0]))
    stepper = optimizer("lion").build([{"params": [param], "lr": 0.1, "weight_decay": 0.0}])
    param.grad = torch.tensor([1.0])
    stepper.step()
    assert float(param.detach()) == pytest.approx(0.9)
    assert float(stepper.state[param]["exp_avg"]) == pytest.approx(0.01)
    param.grad = torch.tensor([-2.0])
    stepper.step()
    assert float(param.detach()) == pytest.approx(1.0)
    assert float(stepper.state[param]["exp_avg"]) == pytest.approx(0.99 * 0.01 - 0.02)


def test_muon_takes_hidden_matrices_only() -> None:
    model, arch = wide_llama()
    stepper = optimizer("muon").build([a_group(model)])
    muon, adamw = _leaves(stepper)
    hidden = sum(p.numel() for g in muon.param_groups for p in g["params"])
    rest = sum(p.numel() for g in adamw.param_groups for p in g["params"])
    assert hidden == arch.groups[1].repeats * sum(lin.num_params for lin in arch.groups[1].linears)
    assert hidden + rest == arch.num_params


def test_muons_products_are_what_torch_multiplies() -> None:
    """FLOP of one step, as torch's own counter sees them."""
    from torch.utils.flop_counter import FlopCounterMode

    model, arch = wide_llama()
    stepper = optimizer("muon").build([a_group(model)])
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    with FlopCounterMode(display=False) as counter:
        stepper.step()
    ledger = apply_passes(arch, a_job(arch, optimizer="muon"), a_config())
    assert counter.get_total_flops() == ledger.step_flops > 0


def test_without_bitsandbytes_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_bit, "find_spec", lambda name: None)
    model, _arch = wide_llama()
    for name in LOW_BIT:
        with pytest.raises(EnvironmentProblem, match="ST582"):
            optimizer(name).build([a_group(model)])
