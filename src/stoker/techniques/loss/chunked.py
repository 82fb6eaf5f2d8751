"""The loss in chunks of 1,024 tokens: full logits never exist, neither forward nor backward.

Bytes per logit of one chunk: the logits in the compute dtype and at most two fp32 tensors of the chunk (case 1:
0.98 GiB for 1,024 x 128,256). Price: the vocabulary projection runs again in backward, 2 H V more FLOPs a token.
"""

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import torch

CHUNK_TOKENS = 1024


class ChunkedLoss:
    """cross_entropy a chunk at a time, recomputed in backward."""

    __slots__ = ()

    name: ClassVar[str] = "chunked"
    recomputes_head: ClassVar[bool] = True
    needs_package: ClassVar[str | None] = None

    def logits_terms(self, tokens: float, num_outputs: int, compute_bytes: float) -> dict[str, float]:
        """Bytes of each tensor alive at the peak, by name."""
        elements = min(tokens, float(CHUNK_TOKENS)) * num_outputs
        terms = {"logits": compute_bytes * elements, "fp32_gradient": 4.0 * elements}
        return terms if compute_bytes >= 4.0 else {**terms, "fp32_copy": 4.0 * elements}

    def logits_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """10 bytes a logit of one chunk in 16 bits, 8 in fp32: the sum of `logits_terms`."""
        return sum(self.logits_terms(tokens, num_outputs, compute_bytes).values())

    def held_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """Nothing outlives the loss."""
        return 0.0

    def head_bytes(self, weight_elements: float, compute_bytes: float) -> float:
        """The weight's gradient, summed over chunks in fp32."""
        return 4.0 * weight_elements

    def language_model_loss(
        self, hidden: "torch.Tensor", head: "torch.nn.Module", labels: "torch.Tensor"
    ) -> "torch.Tensor":
        """Sum of the cross-entropy over labels != -100, fp32. hidden [B, S, H], labels [B, S] (already shifted)."""
        from stoker.techniques.loss.chunks import chunked_cross_entropy

        return chunked_cross_entropy(hidden, head, labels, CHUNK_TOKENS)
