"""Losses that fuse the vocabulary projection with the cross-entropy, by packages: Liger, CCE; and TRL's chunks.

Measured (TRL pull request 6858, H100, 16,384 tokens x 248,320 outputs x 2,048 wide, forward and backward of the loss
alone, GiB): Liger 6.05, cut cross-entropy 3.09, TRL's chunked negative log-likelihood 19.67. What is left after weight,
its gradient and the hidden states is what the classes below state; tests/unit/test_techniques_loss.py holds them to it.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from stoker.core.errors import EnvironmentProblem
from stoker.core.i18n import _
from stoker.techniques.loss.foreign import ForeignLoss

if TYPE_CHECKING:
    import torch

LIGER_CHUNK_TOKENS = 256  # about tokens x width / outputs, rounded up to a power of two; 128 to 1,024 in practice


class LigerLoss:
    """liger-kernel: gradients of hidden states and weight already in forward, a chunk of tokens at a time."""

    __slots__ = ()

    name: ClassVar[str] = "liger"
    recomputes_head: ClassVar[bool] = False
    needs_package: ClassVar[str | None] = "liger_kernel"

    def logits_terms(self, tokens: float, num_outputs: int, compute_bytes: float) -> dict[str, float]:
        """Bytes of each tensor alive at the peak, by name: one chunk and its fp32 form."""
        elements = min(tokens, float(LIGER_CHUNK_TOKENS)) * num_outputs
        return {"logits": compute_bytes * elements, "fp32_copy": 4.0 * elements}

    def logits_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """6 bytes a logit of one chunk in 16 bits: the sum of `logits_terms`."""
        return sum(self.logits_terms(tokens, num_outputs, compute_bytes).values())

    def held_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """Nothing outlives the loss."""
        return 0.0

    def head_bytes(self, weight_elements: float, compute_bytes: float) -> float:
        """The weight's gradient summed in fp32, one chunk's product and its fp32 cast in part: 8 bytes in 16 bits."""
        return (4.0 + 2.0 * compute_bytes) * weight_elements

    def language_model_loss(
        self, hidden: "torch.Tensor", head: "torch.nn.Module", labels: "torch.Tensor"
    ) -> "torch.Tensor":
        """Sum of the cross-entropy over labels != -100. Raises EnvironmentProblem ST585 without the package or CUDA."""
        weight, bias = _plain_head(self, head, hidden)
        from liger_kernel.transformers import (  # type: ignore[import-not-found, unused-ignore]
            LigerFusedLinearCrossEntropyLoss,
        )

        criterion = LigerFusedLinearCrossEntropyLoss(ignore_index=-100, reduction="sum")
        return criterion(weight, hidden.flatten(0, -2), labels.flatten(), bias).float()  # type: ignore[no-any-return]


class CutLoss:
    """Cut cross-entropy (arXiv 2411.09009): logits live in the kernel's own registers; backward makes them again."""

    __slots__ = ()

    name: ClassVar[str] = "cce"
    recomputes_head: ClassVar[bool] = True
    needs_package: ClassVar[str | None] = "cut_cross_entropy"

    def logits_terms(self, tokens: float, num_outputs: int, compute_bytes: float) -> dict[str, float]:
        """Bytes of each tensor alive at the peak, by name: log-sum-exp, the label's logit, and their gradients."""
        return {"statistics": 16.0 * tokens}

    def logits_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """16 bytes a token: the sum of `logits_terms`."""
        return sum(self.logits_terms(tokens, num_outputs, compute_bytes).values())

    def held_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """Nothing outlives the loss."""
        return 0.0

    def head_bytes(self, weight_elements: float, compute_bytes: float) -> float:
        """The weight's gradient before it is added to the standing one."""
        return compute_bytes * weight_elements

    def language_model_loss(
        self, hidden: "torch.Tensor", head: "torch.nn.Module", labels: "torch.Tensor"
    ) -> "torch.Tensor":
        """Sum of the cross-entropy over labels != -100. Raises EnvironmentProblem ST585 without the package or CUDA."""
        weight, bias = _plain_head(self, head, hidden)
        from cut_cross_entropy import linear_cross_entropy  # type: ignore[import-not-found, unused-ignore]

        loss = linear_cross_entropy(
            hidden.to(weight.dtype), weight, labels, bias=bias, ignore_index=-100, reduction="sum"
        )
        return loss.float()  # type: ignore[no-any-return]


class TrlChunkedLoss(ForeignLoss):
    """TRL's default: chunks of tokens whose fp32 logits autograd keeps, with an fp32 copy of the weight."""

    __slots__ = ()

    name: ClassVar[str] = "trl_chunked"

    def logits_terms(self, tokens: float, num_outputs: int, compute_bytes: float) -> dict[str, float]:
        """Bytes of each tensor alive at the peak, by name."""
        return {"fp32_logits": 4.0 * tokens * num_outputs}

    def head_bytes(self, weight_elements: float, compute_bytes: float) -> float:
        """The fp32 copy."""
        return 4.0 * weight_elements


def _plain_head(
    technique: LigerLoss | CutLoss, head: "torch.nn.Module", hidden: "torch.Tensor"
) -> tuple["torch.Tensor", "torch.Tensor | None"]:
    """Weight and bias of a plain linear head; these kernels know no adapter on it, and no CPU."""
    from torch import nn

    package = technique.needs_package or ""
    if find_spec(package) is None or not hidden.is_cuda or type(head) is not nn.Linear:
        raise EnvironmentProblem(
            "ST585",
            _("run.loss: {name} needs the package {package}, a CUDA GPU and a plain linear head").format(
                name=technique.name, package=package.replace("_", "-")
            ),
            place="run.loss",
            fix=_("pip install {package}, or use run.loss: chunked").format(package=package.replace("_", "-")),
        )
    return head.weight, head.bias
