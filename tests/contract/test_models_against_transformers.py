"""Proves that the catalogue says what transformers builds: parameter counts of every bundled shape with the head of
every task (on the meta device), defaults, names and shapes of linears, tied weights, launches, and the bytes that
autograd keeps for a forward in fp32, within 10 %."""

from collections import Counter
from typing import Literal

import pytest
import torch
from model_shapes import (
    ATTENTION_DROPOUT,
    HIDDEN_DROPOUT,
    SHAPES,
    arch_of,
    build,
    declared_bytes,
    inputs_of,
    kept_bytes,
    shape_of,
)
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig
from transformers.pytorch_utils import Conv1D

from stoker.catalogue.models import FAMILIES
from stoker.catalogue.models.api import BundledModel, arch_from_config, bundled_models
from stoker.core.job import Task, TuneSpec
from stoker.core.ledger import untouched
from stoker.techniques.adapter import ADAPTERS

FAMILY_OF = {model_type: family for family in FAMILIES for model_type in family.model_types}
MODEL_TYPES = sorted(FAMILY_OF)
CONVOLUTIONAL = {"resnet", "efficientnet", "convnext", "convnextv2"}
EAGER_BY_DEFAULT = {"gpt_oss", "gemma2", "deberta-v2", "bloom", "mpt", "falcon"}  # these write their score matrix


def unique_params(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in {id(p): p for p in model.parameters()}.values())


@pytest.fixture(autouse=True)
def _quiet() -> None:
    from transformers.utils import logging

    logging.set_verbosity_error()
    torch.manual_seed(0)


def test_every_model_type_has_a_small_shape() -> None:
    assert sorted(SHAPES) == MODEL_TYPES


@pytest.mark.parametrize("model", bundled_models(), ids=lambda model: model.name)
def test_parameter_count_of_each_bundled_shape_and_task(model: BundledModel) -> None:
    config = dict(model.config)
    for task in FAMILY_OF[config["model_type"]].tasks:
        labels = None if task == "causal_lm" else 7
        with torch.device("meta"):
            real = build(config, task, labels)
        arch = arch_from_config(config, task=task, num_labels=labels, name=model.hub_id)
        assert arch.num_params == unique_params(real), task
        assert arch.num_outputs == (config["vocab_size"] if labels is None else labels)
        if task == "causal_lm":
            tied = real.get_output_embeddings().weight is real.get_input_embeddings().weight
            assert arch.tie_word_embeddings == tied


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_defaults_are_those_of_transformers(model_type: str) -> None:
    config = AutoConfig.for_model(model_type)
    for key, value in FAMILY_OF[model_type].model_types[model_type].items():
        if (model_type, key) in {("resnet", "image_size"), ("hyperclovax", "num_key_value_heads")}:
            continue  # resnet's config has no image size; a derived default
        real = getattr(config, key)
        if value is None:  # transformers derives these when it reads the config
            assert key in {"num_key_value_heads", "head_dim", "layer_types", "n_inner", "ffn_hidden_size",
                           "num_kv_heads", "mlp_only_layers", "sliding_window", "pos_att_type",
                           "final_logit_softcapping", "attn_logit_softcapping", "num_ln_in_parallel_attn",
                           "word_embed_proj_dim", "num_experts_per_tok"}  # fmt: skip
        elif key in ("sliding_window", "sliding_window_pattern"):
            assert real in (value, None, 0)  # switched off where another key says so
        else:
            assert (list(real) if isinstance(real, (list, tuple)) else real) == value, key


def tasks_of(model_type: str) -> tuple[Task, ...]:
    return FAMILY_OF[model_type].tasks


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_linears_exist_under_their_names_with_their_shapes(model_type: str) -> None:
    for task in tasks_of(model_type):
        config = shape_of(model_type, dropout=0.0)
        model, arch = build(config, task), arch_of(config, task)
        assert arch.num_params == unique_params(model)
        real: Counter[tuple[str, int, int, bool]] = Counter()
        declared: Counter[tuple[str, int, int, bool]] = Counter()
        names = {(lin.name, lin.in_features, lin.out_features, lin.bias) for g in arch.groups for lin in g.linears}
        for path, module in model.named_modules():
            for name, inputs, outputs, bias in names:
                if path != name and not path.endswith("." + name):
                    continue
                if isinstance(module, nn.Linear):
                    found = (module.in_features, module.out_features, module.bias is not None)
                elif isinstance(module, Conv1D):
                    found = (module.nx, module.nf, True)
                else:
                    continue
                if found == (inputs, outputs, bias):
                    real[name, inputs, outputs, bias] += 1
        for group in arch.groups:
            for lin in group.linears:
                if lin.count == 1:  # experts are 3-D parameters, not linears
                    declared[lin.name, lin.in_features, lin.out_features, lin.bias] += group.repeats
        assert declared == Counter({key: real[key] for key in declared})


@pytest.mark.parametrize(
    ("model_type", "dropout"), [*((name, 0.0) for name in MODEL_TYPES), *((name, 0.1) for name in HIDDEN_DROPOUT)]
)
def test_kept_activations(model_type: str, dropout: float) -> None:
    task = tasks_of(model_type)[0]
    config = shape_of(model_type, dropout=dropout)
    model, arch = build(config, task), arch_of(config, task)
    real = kept_bytes(model, inputs_of(config, task))
    declared = declared_bytes(arch, scores=model_type in EAGER_BY_DEFAULT)
    assert declared == pytest.approx(real, rel=0.1)


@pytest.mark.parametrize("model_type", sorted({*ATTENTION_DROPOUT, "llama", "qwen2", "qwen3", "vit", "olmo2"}))
def test_kept_activations_of_eager_attention(model_type: str) -> None:
    task = tasks_of(model_type)[0]
    config = shape_of(model_type, dropout=0.1, attention_dropout=0.1)
    model, arch = build(config, task, attn_implementation="eager"), arch_of(config, task)
    real = kept_bytes(model, inputs_of(config, task))
    assert declared_bytes(arch, scores=True) == pytest.approx(real, rel=0.1)


@pytest.mark.parametrize("targets", ["all-linear", "attention"])
@pytest.mark.parametrize("model_type", [name for name in MODEL_TYPES if name not in CONVOLUTIONAL])
def test_adapters_learn_what_the_ledger_says(model_type: str, targets: Literal["all-linear", "attention"]) -> None:
    lora = next(adapter for adapter in ADAPTERS if adapter.name == "lora")
    tune = TuneSpec(method="lora", rank=4, targets=targets)
    for task in tasks_of(model_type):
        config = shape_of(model_type, dropout=0.0)
        declared = lora.apply(untouched(arch_of(config, task)), tune).num_trainable
        model = lora.attach(build(config, task), tune)
        assert declared == sum(p.numel() for p in model.parameters() if p.requires_grad)


class CountKernels(TorchDispatchMode):
    """Counts operators that compute, not those that only change a view."""

    _VIEWS = (
        *("view", "transpose", "expand", "slice", "select", "permute", "unsqueeze", "squeeze", "split", "detach"),
        *("alias", "as_strided", "unbind", "_unsafe_view", "empty", "lift_fresh", "_local_scalar", "unfold"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = str(func).split(".")[1]
        self.count += name != "t" and not name.startswith(self._VIEWS)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_kernel_launches_are_of_the_right_order(model_type: str) -> None:
    task = tasks_of(model_type)[0]
    config = shape_of(model_type, dropout=0.0)
    model, arch = build(config, task).eval(), arch_of(config, task)
    with CountKernels() as counter:
        model(**inputs_of(config, task))
    declared = sum(group.repeats * group.num_kernels for group in arch.groups)
    assert 0.5 < declared / counter.count < 1.6


@pytest.mark.parametrize("model_type", ["llama", "bert", "qwen3_moe", "gpt2", "phi3", "modernbert", "vit"])
def test_flops_against_the_flop_counter(model_type: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    task = tasks_of(model_type)[0]
    config = shape_of(model_type, dropout=0.0)
    # the counter knows neither the CPU's fused attention nor its grouped experts
    experts = {"experts_implementation": "eager"} if "moe" in model_type else {}
    model = build(config, task, attn_implementation="eager", **experts).eval()
    arch, inputs = arch_of(config, task), inputs_of(config, task)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**inputs)
    samples = next(iter(inputs.values())).shape[0]
    seq = arch.tokens_per_sample or 64
    declared = 0.0
    for group in arch.groups:
        tokens = samples * (1 if group.kind == "head" and task != "causal_lm" else seq)
        attention = 0.0
        if group.attention is not None:  # the counter takes the whole square, causal or not
            span = min(seq, group.attention.window or seq)
            attention = 4.0 * span * group.attention.num_heads * group.attention.head_dim
        declared += group.repeats * tokens * (group.flops_per_token + attention)
    assert declared == pytest.approx(counter.get_total_flops(), rel=0.02)


@pytest.mark.parametrize("model_type", sorted(CONVOLUTIONAL))
def test_flops_of_convolutions(model_type: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    config = shape_of(model_type, dropout=0.0)
    model, arch = build(config, "image_classification").eval(), arch_of(config, "image_classification")
    inputs = inputs_of(config, "image_classification")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**inputs)
    declared = 4 * sum(group.repeats * group.flops_per_token for group in arch.groups)
    assert declared == pytest.approx(counter.get_total_flops(), rel=0.01)
