"""Adafactor (Shazeer and Stern, 1804.04235): the second moment of a matrix as one row and one column, no first moment.

State is (rows + columns) elements a matrix and one element a vector's; torch steps one tensor at a time and makes its
whole update as a temporary. torch factors the last two dimensions only, so convolution kernels (k x k) keep 2 / k of
their size each way; the ledger counts those, and position tables, in full.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from stoker.core.ledger import ModuleGroup
from stoker.techniques.optimizer.tensors import stepped_tensors

if TYPE_CHECKING:
    import torch


class Adafactor:
    """torch's Adafactor: relative steps of at most `lr` times the parameter's own size."""

    __slots__ = ()

    name: ClassVar[str] = "adafactor"
    step_temp_bytes_per_param: ClassVar[float] = 0.0
    states_may_page: ClassVar[bool] = False
    takes_shards: ClassVar[bool] = True

    def state_bytes(self, group: ModuleGroup) -> int:
        """Row and column factors of one copy of `group`, unsharded, in the format that is stepped."""
        return round(
            sum(
                (t.elements if t.is_vector else t.count * (t.rows + t.columns)) * t.bytes_per_element
                for t in stepped_tensors(group)
            )
        )

    def step_bytes_per_param(self, weight_bytes: float, master_bytes: float, grad_bytes: float) -> float:
        """Bytes read and written per trainable parameter, op by op: 64 in fp32, for nothing is fused.

        The value: its norm, decay (2), the update (2); the gradient: two norms and a product; the update: written,
        scaled (2), clamped (2), root (2), multiplied (2), norm, added.
        """
        stepped = master_bytes or weight_bytes
        return 5.0 * stepped + 3.0 * grad_bytes + 11.0 * stepped + (weight_bytes if master_bytes else 0.0)

    def step_temp_bytes(self, group: ModuleGroup) -> float:
        """The update of the largest tensor."""
        return max((t.elements * t.bytes_per_element for t in stepped_tensors(group)), default=0.0)

    def step_flops(self, group: ModuleGroup) -> float:
        """Outer products only: less than a pass over memory."""
        return 0.0

    def build(self, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """torch's Adafactor, a tensor at a time (its multi-tensor form holds every update at once)."""
        import torch

        return torch.optim.Adafactor(groups, foreach=False)
