"""No capture: Python launches every kernel."""

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import torch


class EagerLoop:
    """The model as it is."""

    __slots__ = ()

    name: ClassVar[str] = "none"
    kernel_frac: ClassVar[float] = 1.0
    warm_up_s: ClassVar[float] = 0.0

    def attach(self, model: "torch.nn.Module") -> "torch.nn.Module":
        return model
