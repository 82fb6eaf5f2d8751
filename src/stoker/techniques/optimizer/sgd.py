"""SGD with momentum 0.9: one buffer a parameter (4 bytes in fp32), made in the first step."""

from typing import TYPE_CHECKING, Any, ClassVar

from stoker.core.ledger import ModuleGroup
from stoker.techniques.optimizer.state_width import optimized_bytes

if TYPE_CHECKING:
    import torch


class SGD:
    """Heavy-ball momentum 0.9; weight decay is added to the gradient, as torch does it."""

    __slots__ = ()

    name: ClassVar[str] = "sgd"
    step_temp_bytes_per_param: ClassVar[float] = 0.0
    states_may_page: ClassVar[bool] = False
    takes_shards: ClassVar[bool] = True

    def state_bytes(self, group: ModuleGroup) -> int:
        """The momentum buffer of one copy of `group`, unsharded."""
        return round(optimized_bytes(group))

    def step_temp_bytes(self, group: ModuleGroup) -> float:
        """None: fused."""
        return 0.0

    def step_flops(self, group: ModuleGroup) -> float:
        """No matrix products."""
        return 0.0

    def step_bytes_per_param(self, weight_bytes: float, master_bytes: float, grad_bytes: float) -> float:
        """Bytes read and written per trainable parameter: gradient, value and momentum (20 in fp32)."""
        stepped = master_bytes or weight_bytes
        return grad_bytes + 4.0 * stepped + (weight_bytes if master_bytes else 0.0)

    def build(self, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """torch's SGD, fused where every parameter's device has it."""
        import torch

        from stoker.techniques.optimizer.fused import has_fused_step

        return torch.optim.SGD(groups, momentum=0.9, fused=has_fused_step(groups) or None)
