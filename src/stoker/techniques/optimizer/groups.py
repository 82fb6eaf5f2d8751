"""Parameter groups: learning rate by depth, weight decay by kind of parameter.

No decay on biases and norms (everything with one axis). `layer_lr_decay` d gives a layer that lies k below the top the
rate lr x d^k; embeddings lie below the first layer, what follows the last layer has the full rate. `head_lr` is the
rate of a fresh head (outside the base model), never of a language model's vocabulary projection.
"""

from typing import TYPE_CHECKING, Any

from stoker.core.job import TrainSpec
from stoker.techniques.names import LAYER, base_attribute, below_base, is_language_model, plain_name

if TYPE_CHECKING:
    import torch


def parameter_groups(model: "torch.nn.Module", train: TrainSpec) -> list[dict[str, Any]]:
    """torch parameter groups (params, lr, weight_decay) of everything in `model` that learns, in a fixed order."""
    base = base_attribute(model)
    fresh_head = not is_language_model(model)
    depths = {name: _depth(name, base) for name, _ in model.named_parameters()}
    top = 1 + max((depth for depth in depths.values() if depth is not None), default=0)
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        depth = depths[name]
        lr = train.lr * train.layer_lr_decay ** (top - (top if depth is None else depth))
        if fresh_head and train.head_lr is not None and below_base(plain_name(name), base) is None:
            lr = train.head_lr
        decay = 0.0 if param.ndim <= 1 or name.endswith(".bias") else train.weight_decay
        groups.setdefault((lr, decay), []).append(param)
    return [{"params": params, "lr": lr, "weight_decay": decay} for (lr, decay), params in groups.items()]


def _depth(name: str, base: str) -> int | None:
    """0 for embeddings, i + 1 for layer i, None for what follows the layers."""
    inner = below_base(plain_name(name), base)
    if inner is None:
        return None
    match = LAYER.search(inner)
    if match:
        return int(match.group(1)) + 1
    first = inner.split(".", 1)[0]
    return 0 if "embed" in first or first in ("wte", "wpe") else None
