"""Model FLOPs of a step, and which share of the device's dense peak that is (MFU).

Counted as in PaLM (2204.02311, appendix B): forward and backward that the model needs, recomputation left out, so that
a slower configuration cannot show a higher share. The peak is that of the very product and number format (case 37).
"""

from stoker.core.hardware import Device
from stoker.core.i18n import _
from stoker.core.utilisation import peak_flops_per_s
from stoker.estimators.scenario import Scenario, mean_batch

_CLOSE = 0.005


def model_flops_per_step(scenario: Scenario) -> float:
    """FLOPs of one optimizer step on one rank, 2 a multiply-add: 6 N T for full tuning, 4 N T for adapters.

    A unit that backward does not reach counts once; attention three times forward.
    """
    batch = mean_batch(scenario)
    flops = 0.0
    for unit in scenario.sums.units:
        matrices = unit.matmul_flops * (2.0 + unit.learning_frac if unit.in_backward else 1.0)
        scores = unit.attention.flops_per_token(batch.seq_len) if unit.attention is not None else 0.0
        times = 3.0 if unit.in_backward else 1.0
        flops += unit.repeats * batch.tokens * (matrices + times * (scores + unit.adapter_flops))
    return flops * scenario.config.gradient_accumulation_steps


def peak_of(scenario: Scenario) -> tuple[float, str]:
    """(dense peak in FLOP/s of the format that computes, its name such as `H200-SXM-141GB bf16 dense`)."""
    device = scenario.cluster.device
    dtype, peak = peak_flops_per_s(device, scenario.ledger.compute_dtype)
    return peak, f"{device.name} {dtype} dense"


def name_peak(flops_per_s: float, devices: tuple[Device, ...]) -> tuple[str, ...]:
    """Which products' peaks `flops_per_s` is: dense, with sparsity (twice), or halved once too often (case 37)."""
    found = []
    for device in devices:
        for dtype, peak in device.peak_flops_per_s.items():
            for factor, text in ((1.0, _("dense")), (2.0, _("with sparsity")), (0.5, _("halved twice"))):
                if abs(flops_per_s - factor * peak) <= _CLOSE * factor * peak:
                    found.append(f"{device.name} {dtype} {text}")
    return tuple(found)
