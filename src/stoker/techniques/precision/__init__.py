"""Precisions: bytes of weight, gradient and master per parameter, and what the device must be able to do."""

from stoker.techniques.lookup import find_technique
from stoker.techniques.precision.amp import Amp
from stoker.techniques.precision.bf16 import Bf16
from stoker.techniques.precision.fp8 import Fp8
from stoker.techniques.precision.fp32 import Fp32
from stoker.techniques.protocols import Precision

PRECISIONS: tuple[Precision, ...] = (
    Bf16(name="bf16", masters=True),
    Amp(name="bf16_amp", compute_dtype="bf16", needs_scaler=False),
    Bf16(name="bf16_pure", masters=False),
    Amp(name="fp16_amp", compute_dtype="fp16", needs_scaler=True),
    Fp32(),
    Fp8(),
)


def precision(name: str) -> Precision:
    """The precision called `name`. Raises PlanningError ST380."""
    return find_technique("precision", PRECISIONS, name)
