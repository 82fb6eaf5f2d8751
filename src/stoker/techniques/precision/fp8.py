"""fp8 products over bf16 weights: 2 + 2 + 4 + 8 bytes a parameter as `bf16`, matrix products at the fp8 peak.

torchao's dynamic tensorwise scaling (its float8 training): weight, input and output gradient of each linear inside the
blocks are cast for every product (e4m3, gradients e5m2) and dropped again, so nothing that is kept becomes smaller:
backward holds the bf16 input, as in bf16, and of a frozen linear too, which bf16 would drop. What is gained is time,
where the device has fp8 units (compute capability 8.9 and up) and the matrices are large. Attention, norms,
embeddings, head, and linears whose sides are no multiples of 16 stay bf16. Elsewhere (a CPU) products are emulated.
"""

from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final

from stoker.core.errors import EnvironmentProblem
from stoker.core.hardware import Device
from stoker.core.i18n import _
from stoker.core.ledger import Ledger, Linear, ModuleGroup
from stoker.techniques.precision.bf16 import Bf16
from stoker.techniques.precision.capability import why_unsupported
from stoker.techniques.protocols import Optimizer

if TYPE_CHECKING:
    import torch

MULTIPLE: Final = 16  # of both sides of a matrix, what the units take
_BF16: Final = Bf16(name="bf16", masters=True)
_LAYOUTS: Final = 2.0  # a weight's fp8 copy, row and column major


class Fp8:
    """bf16 with fp32 masters, products of the blocks' linears in fp8; needs torchao."""

    __slots__ = ()

    name: ClassVar[str] = "fp8"
    compute_dtype: ClassVar[str] = "bf16"
    needs_scaler: ClassVar[bool] = False
    accumulates_fp32: ClassVar[bool] = True

    def apply(self, ledger: Ledger) -> Ledger:
        """As bf16; blocks multiply in fp8."""
        changed = _BF16.apply(ledger)
        untouched = {group.name: group for group in ledger.arch.groups}
        groups = tuple(_in_fp8(group, untouched.get(group.name.split("[")[0])) for group in changed.groups)
        return replace(changed, groups=groups, passes=(*ledger.passes, self.name))

    def unsupported(self, device: Device) -> str | None:
        """Why not, by compute capability; None when the device can (a CPU emulates it)."""
        return why_unsupported(device, "fp8")

    def convert(self, model: "torch.nn.Module") -> None:
        """Every parameter to bf16, adapters to fp32, and the blocks' linears to torchao's.

        Raises EnvironmentProblem ST588 without torchao.
        """
        require_torchao()
        from stoker.techniques.precision.fp8_linears import multiply_in_fp8

        _BF16.convert(model)
        multiply_in_fp8(model)

    def autocast(self, device_type: str) -> AbstractContextManager[Any]:
        """None."""
        return _BF16.autocast(device_type)

    def wrap_optimizer(self, inner: Optimizer, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """The optimizer over fp32 masters."""
        return _BF16.wrap_optimizer(inner, groups)


def is_taken(linear: Linear) -> bool:
    """Whether a linear of a block multiplies in fp8: a dense one with sides that the units take."""
    return linear.count == 1 and linear.in_features % MULTIPLE == 0 and linear.out_features % MULTIPLE == 0


def _in_fp8(group: ModuleGroup, untouched: ModuleGroup | None) -> ModuleGroup:
    taken = [lin for lin in group.linears if is_taken(lin)] if group.kind == "block" else []
    if not taken or group.weights_quantised:
        return group
    names = {lin.name for lin in taken}
    present = {tensor.name for tensor in group.saved}
    inputs = () if untouched is None else (t for t in untouched.saved if t.role == "linear_input")
    again = tuple(t for t in inputs if names.intersection(t.linears) and t.name not in present)
    largest = max(lin.in_features * lin.out_features for lin in taken)
    return replace(
        group,
        saved=(*group.saved, *again) if group.in_backward else group.saved,
        matmul_dtype="fp8",
        matmul_cast_elements=float(sum(lin.in_features for lin in taken)),
        dequantised_temp_bytes=group.dequantised_temp_bytes + _LAYOUTS * largest,
        num_kernels=group.num_kernels + 4 * len(taken),  # largest value and cast, of input and of weight
    )


def require_torchao() -> None:
    """Raises EnvironmentProblem ST588 where fp8 products cannot be built."""
    if find_spec("torchao") is None:
        raise EnvironmentProblem(
            "ST588",
            _("run.precision: fp8 needs torchao"),
            place="run.precision",
            fix=_("pip install torchao, or use run.precision: bf16"),
        )
