"""Torch parameter groups: learning rate by depth and freshness, decay by kind.

Layer l of L learns at lr x layer_lr_decay^(L - l), embeddings as layer 0; a fresh head at `head_lr`. Biases, norms
and other vectors have no weight decay. Each group carries its parameters' names, in order.
"""

import re
from collections.abc import Collection
from typing import Any

import torch

from stoker.core.job import TrainSpec

_LAYER = re.compile(r"\.(?:layer|layers|block|blocks|h|stages)\.(\d+)\.")
_EMBEDDING = re.compile(r"(^|\.)(embeddings?|embed_tokens|wte|embedder|patch_embed\w*)\.")


def parameter_groups(model: torch.nn.Module, train: TrainSpec, fresh: Collection[str]) -> list[dict[str, Any]]:
    """Groups of the trainable parameters of `model`; `fresh`: names of parameters that no checkpoint gave."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    depth = 1 + max((_layer(name) or 0 for name, _p in named), default=0)
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in named:
        lr = _learning_rate(name, train, depth, name in fresh)
        decay = train.weight_decay if parameter.ndim > 1 else 0.0
        group = groups.setdefault(
            (lr, decay), {"params": [], "names": [], "lr": lr, "peak_lr": lr, "weight_decay": decay}
        )
        group["params"].append(parameter)
        group["names"].append(name)
    return sorted(groups.values(), key=lambda g: (g["lr"] != train.lr, -g["weight_decay"]))


def _layer(name: str) -> int | None:
    """1-based layer of a parameter, 0 for embeddings, None above all layers."""
    found = _LAYER.search(name)
    if found:
        return int(found[1]) + 1
    return 0 if _EMBEDDING.search(name) else None


def _learning_rate(name: str, train: TrainSpec, depth: int, is_fresh: bool) -> float:
    if is_fresh:
        return train.head_lr or train.lr
    layer = _layer(name)
    return train.lr * train.layer_lr_decay ** (depth - (depth if layer is None else layer))
