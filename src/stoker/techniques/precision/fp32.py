"""fp32 throughout: 4 bytes a weight, 4 a gradient, no master."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from stoker.core.hardware import Device
from stoker.core.ledger import Ledger, ModuleGroup
from stoker.techniques.precision.activations import saved_in_fp32
from stoker.techniques.protocols import Optimizer

if TYPE_CHECKING:
    import torch


class Fp32:
    """The exact reference, on every device."""

    __slots__ = ()

    name: ClassVar[str] = "fp32"
    compute_dtype: ClassVar[str] = "fp32"
    needs_scaler: ClassVar[bool] = False
    accumulates_fp32: ClassVar[bool] = False

    def apply(self, ledger: Ledger) -> Ledger:
        """4 + 4 bytes a parameter."""
        changed = ledger.map_groups(in_fp32, by=self.name)
        return replace(changed, compute_dtype="fp32", compute_bytes=4.0, autocast=False)

    def unsupported(self, device: Device) -> str | None:
        """Always None."""
        return None

    def convert(self, model: "torch.nn.Module") -> None:
        """Every floating parameter to fp32."""
        from stoker.techniques.precision.conversion import convert_parameters

        convert_parameters(model, base="fp32", compute="fp32")

    def autocast(self, device_type: str) -> AbstractContextManager[Any]:
        """No autocast."""
        return nullcontext()

    def wrap_optimizer(self, inner: Optimizer, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """The optimizer itself."""
        return inner.build(groups)


def in_fp32(group: ModuleGroup) -> ModuleGroup:
    """`group` with fp32 weights, gradients and activations; of a quantised one, everything but its 4-bit weights."""
    group = saved_in_fp32(group)
    weight = 4.0
    if group.weights_quantised and group.num_params:
        unquantised = group.num_params - group.dequantised_bytes / 2.0
        weight = (group.quantised_bytes + 4.0 * unquantised) / group.num_params
    return replace(group, weight_bytes_per_param=weight, master_bytes_per_param=0.0, grad_bytes_per_param=4.0)
