"""Parameter names as people write them: without wrappers (peft, DDP, compile) and without the base model's attribute.

`base_model.model.electra.encoder.layer.0.x` and `electra.encoder.layer.0.x` are both `encoder.layer.0.x` below the
base model `electra`. torch is imported by those who call this; this module only walks what it is given.
"""

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

LAYER: Final = re.compile(r"(?:^|\.)(?:layers?|h|blocks?|stages?)\.(\d+)(?:\.|$)")
_EMBEDDING: Final = re.compile(
    r"(?:^|\.)(?:(?:\w+_)?embeddings?|embed(?:_tokens|_in|_positions)?|wte|wpe|embedder|patch_embed\w*)(?:\.|$)"
)
_WRAPPERS: Final = ("module.", "_orig_mod.", "base_model.model.")
_PEFT_PARTS: Final = re.compile(r"\.(?:base_layer|modules_to_save\.default|original_module)(?=\.|$)")


def unwrapped(model: "torch.nn.Module") -> "torch.nn.Module":
    """The model inside DDP's and peft's wrappers."""
    inner: Any = model
    while True:
        if type(inner).__name__ == "DistributedDataParallel":
            inner = inner.module
        elif hasattr(inner, "get_base_model"):  # peft marks the inner model too, but only its wrapper has this
            inner = inner.get_base_model()
        else:
            return inner  # type: ignore[no-any-return]


def plain_name(name: str) -> str:
    """A parameter or module name without wrappers' parts."""
    while name.startswith(_WRAPPERS):
        name = next(name.removeprefix(wrapper) for wrapper in _WRAPPERS if name.startswith(wrapper))
    return _PEFT_PARTS.sub("", name)


def is_embedding_name(name: str) -> bool:
    """Whether the parameter called `name` is part of an embedding below its layers: token, position or patch tables."""
    return LAYER.search(name) is None and _EMBEDDING.search(name) is not None


def is_block_name(name: str) -> bool:
    """Whether the parameter called `name` lies inside a repeated layer."""
    return LAYER.search(name) is not None


def base_attribute(model: "torch.nn.Module") -> str:
    """Attribute that holds the base model (`electra`, `model`; `encoder` of a pooled classifier); "" when bare."""
    inner: Any = unwrapped(model)
    prefix = getattr(inner, "base_model_prefix", "")
    if prefix and hasattr(inner, prefix):
        return str(prefix)
    return "encoder" if hasattr(getattr(inner, "encoder", None), "base_model_prefix") else ""


def below_base(name: str, base: str) -> str | None:
    """`name` (plain) below the base model, or None when it lies outside (a head)."""
    if not base:
        return name
    return name.removeprefix(base + ".") if name.startswith(base + ".") else None


def matches_prefix(name: str, prefix: str, base: str) -> bool:
    """Whether `prefix` (with or without the base model's name) names the module or parameter `name` or a parent."""
    inner = below_base(name, base)
    if prefix == base and base:
        return inner is not None
    shorter = prefix.split(".", 1)[-1]
    candidates = {prefix, shorter}
    target = name if inner is None else inner
    return any(target == candidate or target.startswith(candidate + ".") for candidate in candidates)


def is_language_model(model: "torch.nn.Module") -> bool:
    """Whether the head projects to the vocabulary (such a head is pretrained, not fresh)."""
    inner: Any = unwrapped(model)
    getter = getattr(inner, "get_output_embeddings", None)
    return getter is not None and getter() is not None
