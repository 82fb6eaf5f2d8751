"""MFU: model FLOP/s over the dense peak of the very product and number format, or the reason why it is no figure.

The peak comes from the device's own table row, so neither the sparse figure, nor TF32's, nor another product's can
slip in (case 37). More than the peak cannot be: then the device, the FLOP count or the time is wrong.
"""

from stoker.core.hardware import Device
from stoker.core.i18n import _
from stoker.core.units import TFLOP


def peak_flops_per_s(device: Device, dtype: str) -> tuple[str, float]:
    """(format, dense FLOP/s): `dtype`, or fp32 where the device has no units for it; 0 where nothing is known."""
    if dtype in device.peak_flops_per_s:
        return dtype, device.peak_flops_per_s[dtype]
    return "fp32", device.peak_flops_per_s.get("fp32", 0.0)


def share_of_peak(flops_per_s: float, device: Device, dtype: str) -> tuple[float | None, str]:
    """(share, why there is none). Model FLOP/s of one device over its dense peak in `dtype`."""
    form, peak = peak_flops_per_s(device, dtype)
    if not peak:
        return None, _("no dense peak of {device} in {dtype} is known").format(device=device.name, dtype=dtype)
    share = flops_per_s / peak
    if not 0.0 <= share <= 1.0:
        return None, over_the_peak(flops_per_s, share, device, form)
    return share, ""


def over_the_peak(flops_per_s: float, share: float, device: Device, dtype: str) -> str:
    """What a share above one says: the formats of the same device that could do it, else a faster product or time."""
    text = _("{share} of the dense {dtype} peak of {device} cannot be: device, FLOP count or time is wrong").format(
        share=f"{share:.0%}", dtype=dtype, device=device.name
    )
    likely = [name for name, peak in device.peak_flops_per_s.items() if name != dtype and peak >= flops_per_s]
    if likely:
        text += "; " + _("{device} reaches that in {names}: {dtype} is likely the wrong peak").format(
            device=device.name, names=", ".join(likely), dtype=dtype
        )
    peak = f"{device.peak_flops_per_s[dtype] / TFLOP:.4g}TFLOPS"
    return text + "; " + _("whose peak a figure is says `stoker explain {peak}`").format(peak=peak)
