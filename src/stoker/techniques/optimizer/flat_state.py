"""Optimizer state as named tensors for safetensors, and back: no pickle on any path.

Keys are `parameter name|state name`, such as `classifier.weight|exp_avg`; fp32 masters are `...|master`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.techniques.precision.masters import MasterWeightOptimizer


def flat_state(optimizer: Optimizer, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every state tensor of `optimizer` by name; the tensors are the live ones, not copies."""
    names: dict[torch.Tensor, str] = {param: name for name, param in model.named_parameters()}
    result: dict[str, torch.Tensor] = {}
    for inner, stepped in _stepped(optimizer):
        for param, stepped_param in stepped.items():
            for key, value in inner.state.get(stepped_param, {}).items():
                if isinstance(value, torch.Tensor):
                    result[f"{names[param]}|{key}"] = value
    if isinstance(optimizer, MasterWeightOptimizer):
        result.update({f"{names[param]}|master": master.detach() for param, master in optimizer.masters.items()})
    return result


def load_flat_state(optimizer: Optimizer, model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Puts `tensors` (of `flat_state`) into `optimizer`. Raises RunError ST480 where a master or state is missing."""
    names: dict[torch.Tensor, str] = {param: name for name, param in model.named_parameters()}
    by_param: dict[str, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        name, _bar, state = key.rpartition("|")
        by_param.setdefault(name, {})[state] = value
    if isinstance(optimizer, MasterWeightOptimizer):
        for param, master in optimizer.masters.items():
            with torch.no_grad():
                master.copy_(_expect(by_param, names[param], "master", master))
    known = {names[param] for _inner, stepped in _stepped(optimizer) for param in stepped}
    if not by_param.keys() <= known:
        raise _mismatch(min(by_param.keys() - known))
    for inner, stepped in _stepped(optimizer):
        _load_inner(inner, stepped, names, by_param)


def _load_inner(
    inner: Optimizer,
    stepped: Mapping[torch.Tensor, torch.Tensor],
    names: Mapping[Any, str],
    by_param: Mapping[str, Mapping[str, torch.Tensor]],
) -> None:
    """Through torch's own load_state_dict, which knows where each step counter must live."""
    outer = {stepped_param: param for param, stepped_param in stepped.items()}
    ordered = [param for group in inner.param_groups for param in group["params"]]
    state: dict[int, dict[str, torch.Tensor]] = {}
    for index, stepped_param in enumerate(ordered):
        saved = by_param.get(names[outer[stepped_param]], {})
        values = {key: value for key, value in saved.items() if key != "master"}
        for key, value in values.items():
            if key != "step" and value.shape != stepped_param.shape:
                raise _mismatch(f"{names[outer[stepped_param]]}|{key}")
        if values:
            state[index] = values
    inner.load_state_dict({"state": state, "param_groups": inner.state_dict()["param_groups"]})


def _stepped(optimizer: Optimizer) -> Iterator[tuple[Optimizer, dict[torch.Tensor, torch.Tensor]]]:
    """(torch optimizer, model parameter -> the tensor that it steps)."""
    if not isinstance(optimizer, MasterWeightOptimizer):
        yield optimizer, {p: p for group in optimizer.param_groups for p in group["params"]}
        return
    for inner in optimizer.inner:
        own = {id(p) for group in inner.param_groups for p in group["params"]}
        pairs = {p: optimizer.masters.get(p, p) for group in optimizer.param_groups for p in group["params"]}
        yield inner, {p: stepped for p, stepped in pairs.items() if id(stepped) in own}


def _expect(
    by_param: Mapping[str, Mapping[str, torch.Tensor]], name: str, state: str, like: torch.Tensor
) -> torch.Tensor:
    value = by_param.get(name, {}).get(state)
    if value is None or value.shape != like.shape:
        raise _mismatch(f"{name}|{state}")
    return value


def _mismatch(key: str) -> RunError:
    return RunError(
        "ST480",
        _("the saved optimizer state does not belong to this model: {key}").format(key=key),
        place=key,
        fix=_("resume with the job that wrote the checkpoint, or start in a new folder"),
    )
