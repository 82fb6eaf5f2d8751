"""bf16 weights and gradients. With fp32 masters and moments 2 + 2 + 4 + 8 bytes a parameter; pure: 2 + 2 + 4.

Masters keep what bf16 drops: at 1.0 bf16 steps by 0.0078, so updates smaller than 0.0039 would be lost.
Adapters stay fp32 and are their own masters. Gradients of several micro-batches add up in fp32 (4 bytes more) and
are rounded once.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from stoker.core.hardware import Device
from stoker.core.ledger import Ledger, ModuleGroup
from stoker.techniques.precision.activations import computes_wide, saved_in_16_bit
from stoker.techniques.precision.capability import why_unsupported
from stoker.techniques.precision.fp32 import in_fp32
from stoker.techniques.protocols import Optimizer

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Bf16:
    """bf16 compute without autocast; `masters`: whether the optimizer steps fp32 copies."""

    name: str
    masters: bool
    compute_dtype: ClassVar[str] = "bf16"
    needs_scaler: ClassVar[bool] = False
    accumulates_fp32: ClassVar[bool] = True

    def apply(self, ledger: Ledger) -> Ledger:
        """2 + 2 bytes a parameter, 4 for the master; beside fp32 embeddings of a quantised model everything is fp32."""
        if any(computes_wide(group) for group in ledger.groups):
            changed = ledger.map_groups(in_fp32, by=self.name)
            return replace(changed, compute_dtype="bf16", compute_bytes=4.0, autocast=False)
        changed = ledger.map_groups(self._in_bf16, by=self.name)
        return replace(changed, compute_dtype="bf16", compute_bytes=2.0, autocast=False)

    def unsupported(self, device: Device) -> str | None:
        """Why not, by compute capability; None when the device can (a CPU can, slowly)."""
        return why_unsupported(device, "bf16")

    def convert(self, model: "torch.nn.Module") -> None:
        """Every parameter to bf16, adapters to fp32."""
        from stoker.techniques.precision.conversion import convert_parameters

        convert_parameters(model, base="bf16", compute="bf16")

    def autocast(self, device_type: str) -> AbstractContextManager[Any]:
        """No autocast: weights are bf16 already."""
        return nullcontext()

    def wrap_optimizer(self, inner: Optimizer, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """The optimizer over fp32 masters; or, pure, over the bf16 weights themselves."""
        if not self.masters:
            return inner.build(groups)
        from stoker.techniques.precision.masters import MasterWeightOptimizer

        return MasterWeightOptimizer(inner.build, groups)

    def _in_bf16(self, group: ModuleGroup) -> ModuleGroup:
        group = saved_in_16_bit(group)
        weight = group.weight_bytes_per_param if group.weights_quantised else 2.0
        return replace(
            group,
            weight_bytes_per_param=weight,
            master_bytes_per_param=4.0 if self.masters else 0.0,
            grad_bytes_per_param=2.0,
        )
