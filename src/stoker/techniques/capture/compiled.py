"""torch.compile: elementwise kernels are fused, so fewer launches and fewer intermediates.

`kernel_frac` and `warm_up_s` are assumed, between published ladders (+27 % tokens/s in torchtune's) and no gain; a
calibration run replaces them. Memory is priced as without it, which is the safe side.
"""

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import torch


class Compiled:
    """torch.compile with dynamic shapes: lengths vary from batch to batch."""

    __slots__ = ()

    name: ClassVar[str] = "compile"
    kernel_frac: ClassVar[float] = 0.5  # assumed
    warm_up_s: ClassVar[float] = 60.0  # assumed

    def attach(self, model: "torch.nn.Module") -> "torch.nn.Module":
        """`model`, its forward compiled in place (names in its state dict stay)."""
        model.compile(dynamic=True)
        return model
