"""AdamW of bitsandbytes (8-bit: Dettmers, 2110.02861): states in one byte, with one fp32 scale per 256 elements.

Tensors under 4,096 elements keep fp32 states, and so do embeddings here (the paper's stable embedding, and what
transformers' Trainer does). States are fp32 or one byte whatever the parameter's format. Two code books of 1 KiB
belong to a device, not to a tensor. *Paged* states of 100,000 elements or more lie in CUDA's managed memory: they
count on the GPU, and move to the host a page at a time when it runs short; on a CPU they are ordinary memory.
"""

import math
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from stoker.core.errors import EnvironmentProblem
from stoker.core.i18n import _
from stoker.core.ledger import ModuleGroup
from stoker.techniques.optimizer.tensors import SteppedTensor, stepped_tensors

if TYPE_CHECKING:
    import torch

_BLOCK: Final = 256
_SMALLEST: Final = 4096  # elements; bitsandbytes' min_8bit_size
_MOMENTS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LowBitAdamW:
    """Decoupled weight decay, betas 0.9 and 0.999; `eight_bit` states, `paged` states, or both."""

    name: str
    eight_bit: bool
    paged: bool
    step_temp_bytes_per_param: float = 0.0  # one kernel reads and writes everything
    takes_shards: bool = True

    @property
    def states_may_page(self) -> bool:
        return self.paged

    def state_bytes(self, group: ModuleGroup) -> int:
        """Both moments and their scales of one copy of `group`, unsharded."""
        return sum(_MOMENTS * self._moment_bytes(tensor) for tensor in stepped_tensors(group))

    def step_bytes_per_param(self, weight_bytes: float, master_bytes: float, grad_bytes: float) -> float:
        """Bytes read and written per trainable parameter: 16 with 8-bit states over fp32, 28 with fp32 ones."""
        stepped = master_bytes or weight_bytes
        moments = _MOMENTS * 2.0 * (1.0 if self.eight_bit else 4.0)
        return grad_bytes + 2.0 * stepped + moments + (weight_bytes if master_bytes else 0.0)

    def step_temp_bytes(self, group: ModuleGroup) -> float:
        """None."""
        return 0.0

    def step_flops(self, group: ModuleGroup) -> float:
        """No matrix products."""
        return 0.0

    def build(self, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """bitsandbytes' AdamW. Raises EnvironmentProblem ST582 without it."""
        require_bitsandbytes(self.name)
        from stoker.techniques.optimizer.low_bit_step import WideWhereNarrowHurts

        optimizer: torch.optim.Optimizer = WideWhereNarrowHurts(groups, eight_bit=self.eight_bit, paged=self.paged)
        return optimizer

    def _moment_bytes(self, tensor: SteppedTensor) -> int:
        if not self.eight_bit or tensor.table or tensor.is_vector or tensor.elements < _SMALLEST:
            return 4 * tensor.elements
        return tensor.elements + 4 * math.ceil(tensor.elements / _BLOCK)


def require_bitsandbytes(name: str) -> None:
    """Raises EnvironmentProblem ST582 where bitsandbytes is not installed."""
    if find_spec("bitsandbytes") is None:
        raise EnvironmentProblem(
            "ST582",
            _("train.optimizer: {name} needs bitsandbytes").format(name=name),
            place="train.optimizer",
            fix=_("pip install bitsandbytes, or use train.optimizer: adamw"),
        )
