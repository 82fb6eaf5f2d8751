"""Automatic mixed precision: fp32 weights, gradients and state (4 + 4 + 8), matrix products in 16 bits.

autocast casts each linear's weight once per forward and keeps the copy until backward: 2 bytes per linear parameter
beside the 16 (`cast_bytes`). Frozen linears under adapters are stored in 16 bits straight away, which is what
autocast would compute with, so a T4 holds a frozen model at 2 bytes a linear parameter (case 24: what learns is fp32).
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from stoker.core.hardware import Device
from stoker.core.ledger import Ledger, ModuleGroup
from stoker.techniques.precision.activations import saved_under_autocast
from stoker.techniques.precision.capability import why_unsupported
from stoker.techniques.protocols import Optimizer

if TYPE_CHECKING:
    import torch

_HALF_BYTES = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Amp:
    """autocast to `compute_dtype`; fp16 has so little range that the loss must be scaled."""

    name: str
    compute_dtype: str
    needs_scaler: bool
    accumulates_fp32: ClassVar[bool] = False

    def apply(self, ledger: Ledger) -> Ledger:
        """4 + 4 bytes a parameter, 16-bit activations where autocast computes in 16 bits."""
        adapted = ledger.num_adapter_params > 0
        changed = ledger.map_groups(lambda group: _under_autocast(group, adapted), by=self.name)
        return replace(changed, compute_dtype=self.compute_dtype, compute_bytes=_HALF_BYTES, autocast=True)

    def unsupported(self, device: Device) -> str | None:
        """Why not, by compute capability; None when the device can (a CPU can, slowly)."""
        return why_unsupported(device, self.compute_dtype)

    def convert(self, model: "torch.nn.Module") -> None:
        """Everything to fp32, except frozen linears beside adapters."""
        from stoker.techniques.precision.conversion import convert_parameters, narrow_frozen_linears

        convert_parameters(model, base="fp32", compute=self.compute_dtype)
        narrow_frozen_linears(model, self.compute_dtype)

    def autocast(self, device_type: str) -> AbstractContextManager[Any]:
        """torch.autocast to the compute format."""
        import torch

        from stoker.techniques.precision.conversion import torch_dtype

        return torch.autocast(device_type, dtype=torch_dtype(self.compute_dtype))

    def wrap_optimizer(self, inner: Optimizer, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """The optimizer itself: the weights are their own masters."""
        return inner.build(groups)


def _under_autocast(group: ModuleGroup, adapted: bool) -> ModuleGroup:
    dense = min(sum(lin.num_params for lin in group.linears if lin.count == 1), group.num_params)
    group = saved_under_autocast(group, _HALF_BYTES)
    if group.weights_quantised:
        return replace(group, grad_bytes_per_param=4.0)
    narrow = adapted and group.base_trainable == 0
    weight_bytes = 4.0 - (4.0 - _HALF_BYTES) * (dense / group.num_params if narrow and group.num_params else 0.0)
    return replace(
        group,
        weight_bytes_per_param=weight_bytes,
        master_bytes_per_param=0.0,
        grad_bytes_per_param=4.0,
        cast_bytes=0 if narrow else round(_HALF_BYTES * dense),
    )
