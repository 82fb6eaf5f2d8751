"""Sharding a real model with FSDP2: every repeated layer a unit, the rest one root unit."""

import re
from typing import Final

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from stoker.techniques.names import base_attribute, below_base, plain_name

_LAYER: Final = re.compile(r"(?:^|\.)(?:layers?|h|blocks?|stages?)\.\d+$")


def shard_model(model: nn.Module, ranks: int) -> nn.Module:
    """`model` with its parameters sharded in place over `ranks` of the default process group."""
    device = next(model.parameters()).device.type
    mesh = init_device_mesh(device, (ranks,), mesh_dim_names=("dp_shard",))
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for block in layer_modules(model):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def layer_modules(model: nn.Module) -> list[nn.Module]:
    """The repeated layers of the base model, outermost first (nested ones belong to their parent)."""
    base = base_attribute(model)
    result: list[nn.Module] = []
    taken: list[str] = []
    for name, module in model.named_modules():
        inner = below_base(plain_name(name), base)
        if inner is None or not _LAYER.search(inner) or any(name.startswith(outer + ".") for outer in taken):
            continue
        taken.append(name)
        result.append(module)
    return result
