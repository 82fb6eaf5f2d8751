"""A classifier over an encoder whose sentence vector is pooled: mean, max, first or last of the real tokens.

For models that were trained to be pooled (E5, MiniLM and other sentence encoders) the architecture's own
classification head, a fresh dense layer on the first token, starts from a vector that means nothing and learns
nothing in a short run. Here the pooled vector is scaled to unit variance per feature (its L2 norm becomes
sqrt(hidden_size)), so that one linear layer learns at the encoder's own learning rate.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

Pooling = Literal["first", "mean", "max", "last"]


def pool(hidden: torch.Tensor, mask: torch.Tensor, how: Pooling) -> torch.Tensor:
    """Sentence vectors [B, H] of `hidden` [B, S, H] under `mask` [B, S] (1: a real token), in fp32."""
    hidden = hidden.float()
    if how == "first":
        return hidden[:, 0]
    if how == "last":
        positions = torch.arange(mask.shape[1], device=mask.device)
        last = (mask * positions).argmax(dim=1)
        return hidden[torch.arange(len(hidden), device=hidden.device), last]
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    if how == "mean":
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)
    return hidden.masked_fill(weights == 0, float("-inf")).amax(dim=1)


class PooledClassifier(nn.Module):
    """`encoder` (a Hugging Face base model) and one linear layer; forward gives logits [B, labels]."""

    def __init__(self, encoder: nn.Module, num_labels: int, pooling: Pooling, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling: Pooling = pooling
        self.dropout = nn.Dropout(dropout)
        hidden = int(self.config.hidden_size)
        self.classifier = nn.Linear(hidden, num_labels)
        nn.init.normal_(self.classifier.weight, std=0.02)
        nn.init.zeros_(self.classifier.bias)

    @property
    def config(self) -> Any:
        """The encoder's Hugging Face config."""
        config: Any = self.encoder.config
        return config

    def head_logits(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Logits [B, labels] from the last hidden state [B, S, H]."""
        vector = functional.normalize(pool(hidden, mask, self.pooling), dim=-1) * hidden.shape[-1] ** 0.5
        return self.classifier(self.dropout(vector).to(self.classifier.weight.dtype))  # type: ignore[no-any-return]

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **inputs: Any) -> torch.Tensor:
        """Logits [B, labels] of token ids [B, S]."""
        output = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **inputs)
        return self.head_logits(output.last_hidden_state, attention_mask)

    def gradient_checkpointing_enable(self, **options: Any) -> None:
        """Recompute inside the encoder, as on any Hugging Face model."""
        enable: Callable[..., None] = self.encoder.gradient_checkpointing_enable  # type: ignore[assignment]
        enable(**options)
