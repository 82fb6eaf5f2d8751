"""A micro-batch and a step's batch: tensors ready for the model, and the counts that the record needs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch

IGNORE: Final = -100  # a target that the loss does not count


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """What one forward takes. `targets`: [B] int64, [B, labels] float32, or next tokens [B, S] with IGNORE.

    `weight`: units of loss (labels or tokens); `tokens`: real ones; `padded_tokens`: computed ones.
    """

    inputs: Mapping[str, torch.Tensor]
    targets: torch.Tensor
    samples: int
    tokens: int
    padded_tokens: int
    weight: float

    def pin(self) -> "MicroBatch":
        """The same in page-locked memory, for copies that do not block."""
        pinned = {name: tensor.pin_memory() for name, tensor in self.inputs.items()}
        return replace(self, inputs=pinned, targets=self.targets.pin_memory())

    def to(self, device: torch.device) -> "MicroBatch":
        """The same on `device`; from pinned memory the copy is only enqueued."""
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in self.inputs.items()}
        return replace(self, inputs=moved, targets=self.targets.to(device, non_blocking=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """All micro-batches of one optimizer step. `step` counts from 0; `epoch` is the pass it belongs to."""

    step: int
    epoch: int
    micro_batches: tuple[MicroBatch, ...]

    @property
    def weight(self) -> float:
        return sum(micro.weight for micro in self.micro_batches)

    @property
    def samples(self) -> int:
        return sum(micro.samples for micro in self.micro_batches)

    @property
    def tokens(self) -> int:
        return sum(micro.tokens for micro in self.micro_batches)

    @property
    def padded_tokens(self) -> int:
        return sum(micro.padded_tokens for micro in self.micro_batches)
