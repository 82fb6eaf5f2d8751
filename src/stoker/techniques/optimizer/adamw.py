"""AdamW (Loshchilov and Hutter, 1711.05101): two moments a parameter, in the format of the parameter it steps.

Over fp32 parameters or masters that is 8 bytes a parameter, and it exists only after the first step (case 4).
torch also keeps one step counter of 4 bytes a parameter *tensor*; that is left out.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from stoker.core.ledger import ModuleGroup
from stoker.techniques.optimizer.state_width import optimized_bytes

if TYPE_CHECKING:
    import torch


class AdamW:
    """Decoupled weight decay, betas 0.9 and 0.999, epsilon 1e-8."""

    __slots__ = ()

    name: ClassVar[str] = "adamw"
    step_temp_bytes_per_param: ClassVar[float] = 0.0  # fused: no temporaries (torch's multi-tensor loop: 4)
    states_may_page: ClassVar[bool] = False
    takes_shards: ClassVar[bool] = True

    def state_bytes(self, group: ModuleGroup) -> int:
        """Both moments of one copy of `group`, unsharded."""
        return round(2.0 * optimized_bytes(group))

    def step_temp_bytes(self, group: ModuleGroup) -> float:
        """None: fused."""
        return 0.0

    def step_flops(self, group: ModuleGroup) -> float:
        """No matrix products."""
        return 0.0

    def step_bytes_per_param(self, weight_bytes: float, master_bytes: float, grad_bytes: float) -> float:
        """Bytes read and written per trainable parameter: 28 for fp32, and for bf16 with masters.

        Reads gradient, stepped value and both moments; writes stepped value, both moments, and the narrow weight
        where a master is stepped.
        """
        stepped = master_bytes or weight_bytes
        return grad_bytes + 6.0 * stepped + (weight_bytes if master_bytes else 0.0)

    def build(self, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """torch's AdamW, fused where every parameter's device has it."""
        import torch

        from stoker.techniques.optimizer.fused import has_fused_step

        return torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-8, fused=has_fused_step(groups) or None)
