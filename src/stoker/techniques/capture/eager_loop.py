"""No capture: Python launches every kernel."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerLoop:
    """The model as it is."""

    name: ClassVar[str] = "none"
    kernel_frac: ClassVar[float] = 1.0
    warm_up_s: ClassVar[float] = 0.0

    def attach(self, model: "torch.nn.Module") -> "torch.nn.Module":
        return model
