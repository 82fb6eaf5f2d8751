"""A classifier over an encoder whose sentence vector is pooled: mean, max, first or last of the real tokens.

For models that were trained to be pooled (E5, MiniLM and other sentence encoders) the architecture's own
classification head, a fresh dense layer on the first token, starts from a vector that means nothing and learns
nothing in a short run. Here the pooled vector is L2-normalised, then centred and scaled to unit variance by constants
of the first training samples: sentence vectors share most of their length (85 % of the energy in multilingual-e5-small
is one common direction), and a linear layer on what they share learns little in a short run. The last layer starts
from the labels' own frequencies.
"""

from collections.abc import Callable, Mapping
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

    centre: torch.Tensor
    scale: torch.Tensor

    def __init__(self, encoder: nn.Module, num_labels: int, pooling: Pooling, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling: Pooling = pooling
        self.dropout = nn.Dropout(dropout)
        hidden = int(self.config.hidden_size)
        self.classifier = nn.Linear(hidden, num_labels)
        nn.init.normal_(self.classifier.weight, std=0.02)
        nn.init.zeros_(self.classifier.bias)
        self.register_buffer("centre", torch.zeros(hidden))
        self.register_buffer("scale", torch.tensor(hidden**0.5))  # unit variance where there is no common part

    @torch.no_grad()
    def fit_constants(self, vectors: torch.Tensor, start_bias: torch.Tensor | None) -> None:
        """Centre and scale from normalised sentence vectors [n, H]; the bias from `start_bias` [labels]."""
        centre = vectors.mean(dim=0)
        spread = (vectors - centre).square().sum(dim=1).mean().sqrt().clamp(min=1e-6)
        self.centre.copy_(centre)
        self.scale.copy_(vectors.shape[1] ** 0.5 / spread)
        for module in self.classifier.modules():  # under an adapter the original and the copy that learns
            if start_bias is not None and isinstance(module, nn.Linear):
                module.bias.copy_(start_bias)

    def sentence_vectors(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Pooled vectors [B, H] of length 1, fp32."""
        return functional.normalize(pool(hidden, mask, self.pooling), dim=-1)

    @property
    def config(self) -> Any:
        """The encoder's Hugging Face config."""
        config: Any = self.encoder.config
        return config

    def head_logits(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Logits [B, labels] from the last hidden state [B, S, H]."""
        vector = (self.sentence_vectors(hidden, mask) - self.centre) * self.scale
        return self.classifier(self.dropout(vector).to(self.classifier.weight.dtype))  # type: ignore[no-any-return]

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **inputs: Any) -> torch.Tensor:
        """Logits [B, labels] of token ids [B, S]."""
        output = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **inputs)
        return self.head_logits(output.last_hidden_state, attention_mask)

    def head_state(self) -> dict[str, torch.Tensor]:
        """What the encoder's own folder does not hold, on the CPU; under an adapter peft keeps the last layer."""
        tensors = {"centre": self.centre, "scale": self.scale}
        if isinstance(self.classifier, nn.Linear):
            tensors |= self.classifier.state_dict()
        return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}

    def load_head_state(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Put back what `head_state` gave. Raises KeyError or RuntimeError for another head's."""
        with torch.no_grad():
            self.centre.copy_(tensors["centre"])
            self.scale.copy_(tensors["scale"])
        if isinstance(self.classifier, nn.Linear):
            self.classifier.load_state_dict({name: tensors[name] for name in ("weight", "bias")})

    def gradient_checkpointing_enable(self, **options: Any) -> None:
        """Recompute inside the encoder, as on any Hugging Face model."""
        enable: Callable[..., None] = self.encoder.gradient_checkpointing_enable  # type: ignore[assignment]
        enable(**options)
