"""What a step minimises: the loss summed over a micro-batch, and the units (labels or tokens) it is summed over.

A step's loss is the sum over all its micro-batches divided by the step's whole number of units, so accumulation
gives the true mean however uneven the micro-batches are (case 16). Sums are fp32.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from stoker.engine.microbatch import IGNORE, MicroBatch

LanguageModelLoss = Callable[[torch.Tensor, torch.nn.Module, torch.Tensor], torch.Tensor]


class Objective(Protocol):
    """A loss over micro-batches."""

    def weight(self, targets: torch.Tensor) -> float:
        """Units of `targets` (on the CPU): what the summed loss is divided by."""

    def loss_sum(self, model: torch.nn.Module, micro: MicroBatch) -> torch.Tensor:
        """Scalar fp32: the loss summed over the micro-batch."""


class SingleLabel:
    """Cross-entropy over classes; `class_weights` [labels] weigh a row by its class, in loss and divisor alike."""

    def __init__(self, class_weights: torch.Tensor | None = None) -> None:
        self.class_weights = class_weights

    def weight(self, targets: torch.Tensor) -> float:
        return float(len(targets)) if self.class_weights is None else float(self.class_weights[targets].sum())

    def loss_sum(self, model: torch.nn.Module, micro: MicroBatch) -> torch.Tensor:
        logits = logits_of(model, micro)
        weights = None if self.class_weights is None else self.class_weights.to(logits.device)
        return functional.cross_entropy(logits.float(), micro.targets, weight=weights, reduction="sum")

    @staticmethod
    def probabilities(logits: torch.Tensor) -> torch.Tensor:
        """Class probabilities [B, labels], fp32."""
        return logits.float().softmax(dim=-1)


class MultiLabel:
    """Binary cross-entropy per label; the units are rows x labels. `positive_weights` [labels] weigh positives up."""

    def __init__(self, positive_weights: torch.Tensor | None = None) -> None:
        self.positive_weights = positive_weights

    def weight(self, targets: torch.Tensor) -> float:
        return float(targets.numel())

    def loss_sum(self, model: torch.nn.Module, micro: MicroBatch) -> torch.Tensor:
        logits = logits_of(model, micro)
        weights = None if self.positive_weights is None else self.positive_weights.to(logits.device)
        return functional.binary_cross_entropy_with_logits(
            logits.float(), micro.targets, pos_weight=weights, reduction="sum"
        )

    @staticmethod
    def probabilities(logits: torch.Tensor) -> torch.Tensor:
        """Label probabilities [B, labels], fp32: thresholds apply to these, never to logits (case 61)."""
        return logits.float().sigmoid()


class NextToken:
    """Cross-entropy of the next token, targets already shifted; the units are counted tokens.

    `kernel` sums it from hidden states and output head, so that logits need not all exist at once. Models that
    change their logits after the head (soft-capping, scaling) go through their own forward instead.
    """

    def __init__(self, kernel: LanguageModelLoss) -> None:
        self.kernel = kernel

    def weight(self, targets: torch.Tensor) -> float:
        return float((targets != IGNORE).sum())

    def loss_sum(self, model: torch.nn.Module, micro: MicroBatch) -> torch.Tensor:
        causal = base_causal_model(model)
        if _changes_logits(causal.config):
            logits = logits_of(model, micro).float()
            return functional.cross_entropy(
                logits.flatten(0, 1), micro.targets.flatten(), ignore_index=IGNORE, reduction="sum"
            )
        decoder = getattr(causal, causal.base_model_prefix)
        hidden = decoder(**micro.inputs, use_cache=False).last_hidden_state
        return self.kernel(hidden, causal.get_output_embeddings(), micro.targets)


def base_causal_model(model: torch.nn.Module) -> Any:
    """The Hugging Face model inside a peft wrapper, or the model itself."""
    inner = getattr(model, "get_base_model", None)
    return inner() if callable(inner) else model


def _changes_logits(config: Any) -> bool:
    scales = (getattr(config, "logit_scale", None), getattr(config, "logits_scaling", None))
    return bool(getattr(config, "final_logit_softcapping", None)) or any(s not in (None, 1, 1.0) for s in scales)


def logits_of(model: torch.nn.Module, micro: MicroBatch) -> torch.Tensor:
    """The model's logits, whether it answers a tensor or a Hugging Face output."""
    output = model(**micro.inputs)
    return output if isinstance(output, torch.Tensor) else output.logits


def balanced_class_weights(counts: Sequence[int]) -> torch.Tensor:
    """n / (classes that occur x count) per class, 1 where a class does not occur: what scikit-learn calls balanced."""
    numbers = np.asarray(counts, dtype=np.float64)
    present = numbers > 0
    weights = np.where(present, numbers.sum() / (max(1, present.sum()) * np.maximum(numbers, 1)), 1.0)
    return torch.tensor(weights, dtype=torch.float32)


def balanced_positive_weights(positives: Sequence[int], num_rows: int) -> torch.Tensor:
    """Negatives / positives per label, at most 100 so that one rare row does not own the gradient; 1 where none."""
    counts: NDArray[np.float64] = np.asarray(positives, dtype=np.float64)
    weights = np.where(counts > 0, (num_rows - counts) / np.maximum(counts, 1), 1.0)
    return torch.tensor(np.clip(weights, 1.0, 100.0), dtype=torch.float32)
