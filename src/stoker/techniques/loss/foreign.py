"""A loss of other people's programs: priced for `stoker validate`, never built by this engine."""

from typing import TYPE_CHECKING, ClassVar

from stoker.core.errors import PlanningError
from stoker.core.i18n import _

if TYPE_CHECKING:
    import torch


class ForeignLoss:
    """What such losses share; each states its own bytes."""

    __slots__ = ()

    name: ClassVar[str]
    recomputes_head: ClassVar[bool] = False
    needs_package: ClassVar[str | None] = None

    def logits_terms(self, tokens: float, num_outputs: int, compute_bytes: float) -> dict[str, float]:
        """Bytes of each tensor alive at the peak, by name."""
        raise NotImplementedError

    def logits_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """The sum of `logits_terms`."""
        return sum(self.logits_terms(tokens, num_outputs, compute_bytes).values())

    def held_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """Nothing outlives the loss."""
        return 0.0

    def head_bytes(self, weight_elements: float, compute_bytes: float) -> float:
        """Nothing of the weight's size."""
        return 0.0

    def language_model_loss(
        self, hidden: "torch.Tensor", head: "torch.nn.Module", labels: "torch.Tensor"
    ) -> "torch.Tensor":
        """Raises PlanningError ST381: only its cost is known here."""
        raise PlanningError(
            "ST381",
            _("the loss {name} is another program's: stoker prices it and does not build it").format(name=self.name),
            place="run.loss",
            fix=_("use one of: eager, chunked, liger, cce"),
        )
