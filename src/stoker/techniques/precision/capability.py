"""Which devices compute in which narrow format: by compute capability, never by a permissive query.

torch.cuda.is_bf16_supported() answers yes on a T4, where bf16 is emulated and many times slower.
"""

from typing import Final

from stoker.core.hardware import Device
from stoker.core.i18n import _

# the first generation with matrix units of that format
_NEEDED: Final = {
    "bf16": (8, 0),
    "fp16": (7, 0),
    "fp8": (8, 9),
}  # Ampere, Volta, Ada


def why_unsupported(device: Device, dtype: str) -> str | None:
    """Why `device` has no matrix units for `dtype`, or None. A CPU computes in every format, if slowly."""
    if device.kind == "cpu" or device.supports(dtype):
        capability = device.compute_capability
        if capability is None or capability >= _NEEDED[dtype]:
            return None
    if device.compute_capability is not None:
        major, minor = device.compute_capability
        if (major, minor) >= _NEEDED[dtype]:
            return None
        return _("{dtype} needs compute capability {need}, {device} has {have}").format(
            dtype=dtype,
            need="{}.{}".format(*_NEEDED[dtype]),
            device=device.name,
            have=f"{major}.{minor}",
        )
    return _("{device} has no matrix units for {dtype}").format(device=device.name, dtype=dtype)
