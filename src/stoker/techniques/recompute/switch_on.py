"""Hugging Face's switch for recomputation of blocks, with whatever torch's checkpoint is to be told."""

from typing import Any

from torch import nn

from stoker.techniques.recompute.full import no_blocks


def enable_recompute(model: nn.Module, **options: Any) -> None:
    """Non-reentrant: it works with frozen inputs and DDP (case 21). Raises ModelError ST280 without blocks."""
    enable: Any = getattr(model, "gradient_checkpointing_enable", None)
    try:
        if enable is None:
            raise ValueError(type(model).__name__)
        enable(gradient_checkpointing_kwargs={"use_reentrant": False, **options})
    except ValueError as error:
        raise no_blocks(type(model).__name__) from error
    config: Any = getattr(model, "config", None)
    if getattr(config, "use_cache", False):
        config.use_cache = False
