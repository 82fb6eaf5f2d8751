"""The ordinary loss: full logits, an fp32 copy, its log-softmax, and their gradients.

Bytes per logit at the peak, which lies in backward of the loss: fp32 log-softmax (kept by autograd), the gradient into
it and the gradient out of it, 12 bytes (measured in tests/contract/test_losses.py); and the logits themselves, which
this kernel lets go but a model's own output object holds. Case 1 names the first lines: 1.96 GiB of bf16 logits,
3.91 of fp32 copy, 3.91 of fp32 gradient for 8,192 x 128,256.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerLoss:
    """cross_entropy over all logits at once."""

    name: ClassVar[str] = "eager"
    recomputes_head: ClassVar[bool] = False

    def logits_terms(self, tokens: float, num_outputs: int, compute_bytes: float) -> dict[str, float]:
        """Bytes of each tensor alive at the peak, by name."""
        elements = tokens * num_outputs
        terms = {
            "logits": compute_bytes * elements,
            "fp32_copy": 4.0 * elements,
            "fp32_gradient": 4.0 * elements,
            "loss_gradient": 4.0 * elements,
        }
        if compute_bytes >= 4.0:
            del terms["fp32_copy"]
            terms["log_softmax"] = 4.0 * elements
        return terms

    def logits_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """14 bytes a logit in 16 bits, 16 in fp32: the sum of `logits_terms`."""
        return sum(self.logits_terms(tokens, num_outputs, compute_bytes).values())

    def language_model_loss(
        self, hidden: "torch.Tensor", head: "torch.nn.Module", labels: "torch.Tensor"
    ) -> "torch.Tensor":
        """Sum of the cross-entropy over labels != -100, fp32. hidden [B, S, H], labels [B, S] (already shifted)."""
        from torch.nn import functional

        logits = head(hidden)
        return functional.cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), reduction="sum")
