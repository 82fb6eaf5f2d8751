"""Muon (Jordan, 2024; at scale: 2502.16982): momentum of the matrices inside blocks, orthogonalised before each step.

One moment (4 bytes a parameter over fp32) for 2-D matrices of blocks; AdamW's two for everything else: embeddings,
heads, norms, biases, expert stacks (3-D). Five Newton-Schulz iterations in bf16 are matrix products: per m x n matrix
(m <= n) and iteration 4 m^2 n + 2 m^3 FLOP. Updates are scaled to AdamW's size (2502.16982, section 2.2), so that one
learning rate serves both halves.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Final

from stoker.core.ledger import ModuleGroup
from stoker.techniques.optimizer.tensors import SteppedTensor, stepped_tensors

if TYPE_CHECKING:
    import torch

_ITERATIONS: Final = 5
_BF16_BYTES: Final = 2.0


class Muon:
    """torch's Muon (momentum 0.95, Nesterov) beside torch's AdamW."""

    __slots__ = ()

    name: ClassVar[str] = "muon"
    step_temp_bytes_per_param: ClassVar[float] = 0.0
    states_may_page: ClassVar[bool] = False
    takes_shards: ClassVar[bool] = False  # torch's orthogonalises whole matrices; gathering them first is not built

    def state_bytes(self, group: ModuleGroup) -> int:
        """One moment of hidden matrices and two of the rest, of one copy of `group`, unsharded."""
        return round(sum(t.elements * t.bytes_per_element * (1.0 if t.hidden else 2.0) for t in stepped_tensors(group)))

    def step_bytes_per_param(self, weight_bytes: float, master_bytes: float, grad_bytes: float) -> float:
        """Bytes read and written per hidden parameter beside the products, op by op: 48 in fp32.

        Moment (3), Nesterov's average (3, written at full width), its bf16 form and norm (1 and 4 x 2 bytes),
        decay and step (4, and 2 bytes).
        """
        stepped = master_bytes or weight_bytes
        narrow = weight_bytes if master_bytes else 0.0
        return 2.0 * grad_bytes + 9.0 * stepped - 2.0 * (stepped - _BF16_BYTES) + 4.0 * _BF16_BYTES + narrow

    def step_temp_bytes(self, group: ModuleGroup) -> float:
        """The averaged gradient, its bf16 form twice over, and two small squares, of the largest hidden matrix."""
        return max((_temp_bytes(t) for t in stepped_tensors(group) if t.hidden), default=0.0)

    def step_flops(self, group: ModuleGroup) -> float:
        """Matrix products of one step over one copy of `group`."""
        return sum(_flops(t) for t in stepped_tensors(group) if t.hidden)

    def build(self, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """Both halves behind one optimizer; which parameters are hidden matrices is told by the groups' `names`."""
        from stoker.techniques.optimizer.muon_step import MuonBesideAdamW

        return MuonBesideAdamW(groups)


def _flops(tensor: SteppedTensor) -> float:
    short, long = sorted((tensor.rows, tensor.columns))
    return _ITERATIONS * (4.0 * short * short * long + 2.0 * short**3)


def _temp_bytes(tensor: SteppedTensor) -> float:
    short = min(tensor.rows, tensor.columns)
    return tensor.elements * (tensor.bytes_per_element + 2.0 * _BF16_BYTES) + 2.0 * _BF16_BYTES * short * short
