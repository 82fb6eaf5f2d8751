"""Lion (Chen et al., 2302.06675): one moment a parameter; the step is the sign of an average of moment and gradient.

4 bytes a parameter over fp32. The learning rate that suits it is 3 to 10 times smaller than AdamW's.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from stoker.core.ledger import ModuleGroup
from stoker.techniques.optimizer.state_width import optimized_bytes
from stoker.techniques.optimizer.tensors import stepped_tensors

if TYPE_CHECKING:
    import torch


class Lion:
    """Betas 0.9 and 0.99, decoupled weight decay; our own loop, for torch has none."""

    __slots__ = ()

    name: ClassVar[str] = "lion"
    step_temp_bytes_per_param: ClassVar[float] = 0.0
    states_may_page: ClassVar[bool] = False
    takes_shards: ClassVar[bool] = True

    def state_bytes(self, group: ModuleGroup) -> int:
        """The moment of one copy of `group`, unsharded."""
        return round(optimized_bytes(group))

    def step_bytes_per_param(self, weight_bytes: float, master_bytes: float, grad_bytes: float) -> float:
        """Bytes read and written per trainable parameter, op by op: 48 in fp32.

        Average (3), its sign (2), decay (2), step (3), moment (3); of these the gradient is read twice.
        """
        stepped = master_bytes or weight_bytes
        return 2.0 * grad_bytes + 10.0 * stepped + (weight_bytes if master_bytes else 0.0)

    def step_temp_bytes(self, group: ModuleGroup) -> float:
        """The step of the largest tensor."""
        return max((t.elements * t.bytes_per_element for t in stepped_tensors(group)), default=0.0)

    def step_flops(self, group: ModuleGroup) -> float:
        """No matrix products."""
        return 0.0

    def build(self, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """Our Lion over these groups."""
        from stoker.techniques.optimizer.lion_step import LionOptimizer

        return LionOptimizer(groups)
