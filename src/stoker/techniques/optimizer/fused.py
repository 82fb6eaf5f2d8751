"""Whether torch can step parameters in one fused kernel: no temporaries and one pass over memory."""

from typing import Any

_FUSED_DEVICES = ("cuda", "cpu", "mps", "xpu")  # torch.utils._foreach_utils._get_fused_kernels_supported_devices


def has_fused_step(groups: list[dict[str, Any]]) -> bool:
    """True when every parameter of `groups` is a floating tensor on a device with fused optimizer kernels."""
    params = [param for group in groups for param in group["params"]]
    return bool(params) and all(p.is_floating_point() and p.device.type in _FUSED_DEVICES for p in params)
