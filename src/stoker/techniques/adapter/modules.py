"""Freezing and adapters on a real model: the torch half of `full`, `lora` and `dora`."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from stoker.core.job import TuneSpec
from stoker.techniques.adapter.freeze import nothing_to_freeze
from stoker.techniques.adapter.lora import nothing_to_adapt
from stoker.techniques.adapter.targets import is_target, taken_for_expert
from stoker.techniques.names import LAYER, base_attribute, below_base, is_language_model, matches_prefix


def freeze_prefixes(model: nn.Module, prefixes: Sequence[str]) -> None:
    """Switches off the gradient of every parameter under a prefix. Raises ModelError ST282 for one without any."""
    base = base_attribute(model)
    for prefix in prefixes:
        found = [param for name, param in model.named_parameters() if matches_prefix(name, prefix, base)]
        if not found:
            names = sorted({name for name, child in model.named_children() if any(True for _p in child.parameters())})
            raise nothing_to_freeze(prefix, type(model).__name__, names)
        for param in found:
            param.requires_grad_(False)


def attach_low_rank(model: nn.Module, tune: TuneSpec, *, dora: bool) -> nn.Module:
    """`model` in peft's wrapper: fp32 adapters on the targeted linears of its blocks, a fresh head learning in full."""
    from peft import LoraConfig, TaskType, get_peft_model

    base = base_attribute(model)
    freeze_prefixes(model, tune.freeze)
    targets = [name for name, _linear in block_linears(model, base) if _wanted(name, base, tune)]
    if _has_stacked_experts(model):
        targets = [name for name in targets if not taken_for_expert(name)]
    if not targets:
        raise nothing_to_adapt(type(model).__name__, tune)
    language = is_language_model(model)
    heads = [] if language else list(_head_modules(model, base, tune.freeze))
    kind = TaskType.CAUSAL_LM if language and hasattr(model, "prepare_inputs_for_generation") else None
    config = LoraConfig(
        r=tune.rank,
        lora_alpha=tune.alpha,  # type: ignore[arg-type]  # peft divides; a fraction is fine
        lora_dropout=tune.dropout,
        target_modules=_short_names(model, targets),
        modules_to_save=heads or None,
        use_dora=dora,
        fan_in_fan_out=any(_is_transposed(model.get_submodule(name)) for name in targets),
        bias="none",
        task_type=kind,
    )
    wrapped: Any = get_peft_model(model, config)
    for name, param in wrapped.named_parameters():
        if "lora_" in name:
            param.data = param.data.float()
    return wrapped  # type: ignore[no-any-return]


def _has_stacked_experts(model: nn.Module) -> bool:
    return any(parameter.dim() == 3 and ".experts." in name for name, parameter in model.named_parameters())


def _is_transposed(module: nn.Module) -> bool:
    """GPT-2's Conv1D: a linear layer whose matrix is stored the other way round."""
    return type(module).__name__ == "Conv1D"


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or _is_transposed(module)


def block_linears(model: nn.Module, base: str) -> Iterator[tuple[str, nn.Module]]:
    """(name, linear) of the linears inside repeated layers of the base model."""
    for name, module in model.named_modules():
        inner = below_base(name, base)
        # bitsandbytes' Linear4bit is an nn.Linear too
        if inner is not None and _is_linear(module) and LAYER.search(inner):
            yield name, module


def _wanted(name: str, base: str, tune: TuneSpec) -> bool:
    inner = below_base(name, base) or name
    inside = _inside_layer(inner)
    frozen = any(matches_prefix(name, prefix, base) for prefix in tune.freeze)
    return not frozen and is_target(inside, tune.targets)


def _inside_layer(name: str) -> str:
    """`self_attn.q_proj` of `layers.0.self_attn.q_proj`; past the last index where layers nest."""
    while match := LAYER.search(name):
        name = name[match.end() :]
    return name


def _head_modules(model: nn.Module, base: str, freeze: Sequence[str]) -> Iterator[str]:
    """Modules with parameters outside the base model, and its pooler: they are fresh and learn in full."""
    modules = {name: child for name, child in model.named_children() if name != base}
    pooler = getattr(getattr(model, base, None), "pooler", None) if base else None
    if isinstance(pooler, nn.Module):
        modules[f"{base}.pooler"] = pooler
    for name, module in modules.items():
        frozen = any(matches_prefix(name, prefix, base) for prefix in freeze)
        if not frozen and any(True for _p in module.parameters()):
            yield name


def _short_names(model: nn.Module, targets: Sequence[str]) -> list[str]:
    """Suffixes that match exactly `targets`, where such exist: they read better in adapter_config.json."""
    suffixes = sorted({_inside_layer(name) for name in targets})
    matched = {
        name
        for name, module in model.named_modules()
        if _is_linear(module) and any(name == s or name.endswith("." + s) for s in suffixes)
    }
    return suffixes if matched == set(targets) else list(targets)
