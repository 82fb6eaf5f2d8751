"""The ordinary loss: full logits, an fp32 copy, its log-softmax, and their gradients; and two forms found elsewhere.

Bytes per logit at the peak, which lies in backward of the loss: fp32 log-softmax (kept by autograd), the gradient into
it and the gradient out of it, 12 bytes (measured in tests/contract/test_losses.py); and the logits themselves, which
this kernel lets go but a model's own output object holds. Case 1 names the first lines: 1.96 GiB of bf16 logits,
3.91 of fp32 copy, 3.91 of fp32 gradient for 8,192 x 128,256.
"""

from typing import TYPE_CHECKING, ClassVar

from stoker.techniques.loss.foreign import ForeignLoss

if TYPE_CHECKING:
    import torch


class EagerLoss:
    """cross_entropy over all logits at once."""

    __slots__ = ()

    name: ClassVar[str] = "eager"
    recomputes_head: ClassVar[bool] = False
    needs_package: ClassVar[str | None] = None

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

    def held_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """The logits, where the model's output object lives on through backward."""
        return compute_bytes * tokens * num_outputs

    def head_bytes(self, weight_elements: float, compute_bytes: float) -> float:
        """None: the weight's gradient is made by the ordinary backward."""
        return 0.0

    def language_model_loss(
        self, hidden: "torch.Tensor", head: "torch.nn.Module", labels: "torch.Tensor"
    ) -> "torch.Tensor":
        """Sum of the cross-entropy over labels != -100, fp32. hidden [B, S, H], labels [B, S] (already shifted)."""
        from torch.nn import functional

        logits = head(hidden)
        return functional.cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), reduction="sum")


class UpcastLoss(ForeignLoss):
    """transformers before 4.45: the model returns fp32 logits, shifted into a copy; 16 bytes a logit, 4 held."""

    __slots__ = ()

    name: ClassVar[str] = "upcast"

    def logits_terms(self, tokens: float, num_outputs: int, compute_bytes: float) -> dict[str, float]:
        """Bytes of each tensor alive at the peak, by name."""
        fp32 = 4.0 * tokens * num_outputs
        return {"logits": fp32, "log_softmax": fp32, "fp32_gradient": fp32, "loss_gradient": fp32}

    def held_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """fp32 logits of the output object."""
        return 4.0 * tokens * num_outputs


class ShiftedLoss(ForeignLoss):
    """Early 2024's trainers over models that shift their own logits: 22 bytes a logit, 4 held.

    16-bit logits, their fp32 form as Accelerate's autocast returns it, log-softmax, and three fp32 gradients, one of
    them of the shifted slice. Qwen-7B ran at 16,384 tokens of 151,936 outputs on 80 GB, so it cannot be above 24.
    """

    __slots__ = ()

    name: ClassVar[str] = "shifted"

    def logits_terms(self, tokens: float, num_outputs: int, compute_bytes: float) -> dict[str, float]:
        """Bytes of each tensor alive at the peak, by name."""
        elements = tokens * num_outputs
        kept = {"logits": compute_bytes * elements, "output": 4.0 * elements, "log_softmax": 4.0 * elements}
        names = ("fp32_gradient", "loss_gradient", "shift_gradient")
        return kept | dict.fromkeys(names, 4.0 * elements)

    def held_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """fp32 logits of the output object."""
        return 4.0 * tokens * num_outputs


class NarrowLoss(ForeignLoss):
    """cross_entropy on 16-bit logits (LitGPT, Qwen's own code): log-softmax and both gradients in 16 bits, 8 bytes."""

    __slots__ = ()

    name: ClassVar[str] = "narrow"

    def logits_terms(self, tokens: float, num_outputs: int, compute_bytes: float) -> dict[str, float]:
        """Bytes of each tensor alive at the peak, by name."""
        one = compute_bytes * tokens * num_outputs
        return {"logits": one, "log_softmax": one, "gradient": one, "loss_gradient": one}

    def held_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """The logits."""
        return compute_bytes * tokens * num_outputs
