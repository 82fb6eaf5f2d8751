"""What a plain loop needs no code for: next-token loss of Hugging Face causal models, full logits never made."""

from collections.abc import Mapping
from typing import Any

import torch

from stoker.techniques.loss.chunked import CHUNK_TOKENS
from stoker.techniques.loss.chunks import chunked_cross_entropy

_IGNORED = -100


def causal_lm_loss(model: Any, micro_batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Summed cross-entropy of the next token. `labels` [B, S] as Hugging Face wants them: not shifted yet, -100 out."""
    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    decoder = getattr(causal, causal.base_model_prefix)
    inputs = {name: value for name, value in micro_batch.items() if name != "labels"}
    hidden = decoder(**inputs, use_cache=False).last_hidden_state
    return chunked_cross_entropy(
        hidden[:, :-1], causal.get_output_embeddings(), micro_batch["labels"][:, 1:], CHUNK_TOKENS
    )


def causal_lm_weight(micro_batch: Mapping[str, torch.Tensor]) -> float:
    """Tokens that `causal_lm_loss` counts."""
    return float((micro_batch["labels"][:, 1:] != _IGNORED).sum())
