"""What a device reaches in each class of operation: FLOP/s of products and of attention, bytes a second.

The share of the dense peak that large products reach is the family's ceiling, lowered where the board's power does not
hold the rated clock: a T4 (70 W for 65 TFLOP/s) or an L4 reaches less of its sheet than a V100 or an L40S.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from stoker.core.efficiency import Efficiency, SpeedShares
from stoker.core.hardware import Device
from stoker.estimators.ledger_sums import ProductSums

_TERA = 1e12
_HIGHEST_CLOCK = 1.1  # of the rated one: what boards with power to spare boost to (RTX 4090: 2.75 of 2.52 GHz)
_16_BIT = ("bf16", "fp16")
_TENSOR = ("bf16", "fp16", "tf32", "fp8", "fp4", "int8")


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of one device in one number format. `wave_outputs`, `fill_depth`: see `products_s`."""

    matmul: float
    attention: float
    memory: float
    wave_outputs: float
    fill_depth: float
    shares: SpeedShares

    def products_s(self, sums: ProductSums, rows: float) -> float:
        """Forward of all matrices over `rows` tokens: FLOPs, an unfilled wave along each depth, a fill for each output.

        A product of M x K by K x N costs 2 M K N (1 + wave / (M N) + fill / K) over the rate.
        """
        work = sums.flops * rows + 2.0 * self.wave_outputs * sums.depth
        return (work + 2.0 * self.fill_depth * rows * sums.taken_columns) / self.matmul

    def input_gradients_s(self, sums: ProductSums, rows: float) -> float:
        """The same products with depth and columns exchanged."""
        work = sums.flops * rows + 2.0 * self.wave_outputs * sums.columns
        return (work + 2.0 * self.fill_depth * rows * sums.taken_depth) / self.matmul

    def weight_gradients_s(self, sums: ProductSums, rows: float) -> float:
        """Products as deep as there are rows, with a matrix's own elements as outputs."""
        work = sums.flops * rows + 2.0 * self.wave_outputs * rows * sums.taken
        return (work + 2.0 * self.fill_depth * sums.weights) / self.matmul


def rates_of(efficiency: Efficiency, device: Device, dtype: str) -> Rates:
    """Rates of `device` in `dtype`; fp32 where it has no units for that."""
    form = dtype if device.supports(dtype) else "fp32"
    shares = efficiency.speed(device, form)
    peak = device.peak_flops_per_s.get(form) or max(device.peak_flops_per_s.values())
    clock = clock_frac(device, form, shares, efficiency.constants)
    return Rates(
        peak * shares.matmul_frac * clock,
        peak * shares.attention_frac,
        device.memory_bytes_per_s * shares.memory_frac,
        shares.wave_outputs,
        efficiency.constants["fill_depth"] if device.kind != "cpu" else 0.0,
        shares,
    )


def clock_frac(device: Device, dtype: str, shares: SpeedShares, constants: Mapping[str, float]) -> float:
    """Share of the rated clock that `device` holds in large products, by its watts for each FLOP of a clock.

    `full_power_w_per_tflop` lets the clock of the family's usual boards hold. With a share x of it the clock falls as
    x^`power_exponent` (voltage falls with it), below the knee as x (voltage has reached its floor). What remains is
    compared with the clock that the peak is rated at: an H100 PCIe is rated at 0.885 of an SXM's clock, and holds that;
    a board with power to spare runs above it.
    Every tensor format draws about the same at its own peak; fp32 off the tensor units draws less and is not limited.
    """
    if dtype not in _TENSOR or not device.tdp_w or shares.full_power_w_per_tflop <= 0.0:
        return 1.0
    peak = next((device.peak_flops_per_s[form] for form in _16_BIT if form in device.peak_flops_per_s), None)
    if peak is None:
        return 1.0
    knee, rated = constants["power_knee"], device.rated_clock_frac
    power = device.tdp_w / (peak / _TERA) * rated / shares.full_power_w_per_tflop
    held = max(power, knee) ** constants["power_exponent"] * min(1.0, power / knee)
    return float(min(held, _HIGHEST_CLOCK) / rated)
