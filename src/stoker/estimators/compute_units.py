"""Seconds of one copy of a module group over one micro-batch: products, attention, element-wise work, adapters.

Classes add up, for a kernel of one class does not run beside another's. Products take the longer of FLOPs and bytes.
"""

from dataclasses import dataclass

from stoker.estimators.compute_rates import Rates, rates_of
from stoker.estimators.ledger_sums import UnitSums
from stoker.estimators.memory import saved_bytes
from stoker.estimators.scenario import Batch, Scenario

_FLASH_BACKWARD = 2.5  # fused attention recomputes its scores in backward (FlashAttention-2, 2307.08691, section 3)
_GROUPED = "grouped"  # the unit of grouped convolutions (catalogue/models/tables/image_facts.py)
_MIXED = "mixed"  # image networks with attention: few of their bytes belong to convolutions
_NARROW = ("fp8", "fp4")
_TENSOR_CORES = (7, 0)  # compute capability
_THIN_FRAC = 0.25  # of the rate: products as thin as an adapter's rank leave most of a tile unused


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCosts:
    """Prices units for one batch. `element_bytes`: of an activation; `forward`, `backward`: bytes moved a saved one."""

    rates: Rates
    narrow: Rates | None
    wide: Rates | None
    batch: Batch
    element_bytes: float
    fused: float
    stack_fused: float
    forward: float
    backward: float
    loose: float
    map_frac: float
    grouped_frac: float
    score_frac: float
    dequantise_frac: float
    half_span: float
    kernel_frac: float
    casts: bool
    scores: bool
    transposes: bool

    @classmethod
    def of(cls, scenario: Scenario, batch: Batch) -> "UnitCosts":
        """The prices of `scenario` on its device."""
        device, ledger, constants = scenario.cluster.device, scenario.ledger, scenario.efficiency.constants
        dtypes = {unit.products.dtype for unit in scenario.sums.units} - {None, ledger.compute_dtype}
        if scenario.products in _NARROW:
            dtypes = {scenario.products}
        narrow = next((rates_of(scenario.efficiency, device, dtype) for dtype in dtypes if dtype), None)
        dtype = scenario.products if scenario.products == "tf32" else ledger.compute_dtype
        fused = scenario.stack.traffic_frac
        if scenario.config.capture == "compile":
            fused *= constants["compiled_traffic"]
        in_fp32 = scenario.stack.kbit_runs_in_fp32 and any(group.weights_quantised for group in ledger.groups)
        return cls(
            rates=rates_of(scenario.efficiency, device, dtype),
            narrow=narrow,
            wide=rates_of(scenario.efficiency, device, "fp32") if in_fp32 else None,
            batch=batch,
            element_bytes=ledger.compute_bytes,
            fused=fused,
            stack_fused=scenario.stack.traffic_frac,
            forward=constants["traffic_forward"] * fused,
            backward=constants["traffic_backward"] * fused,
            loose=constants["traffic_loose"],
            map_frac=constants["map_frac"],
            grouped_frac=constants["grouped_frac"],
            score_frac=constants["score_frac"],
            dequantise_frac=constants["dequantise_frac"],
            half_span=constants["half_span"] if device.kind != "cpu" else 0.0,
            kernel_frac=_kernel_frac(scenario),
            casts=scenario.products in _NARROW,
            scores=scenario.config.attention == "eager" or not scenario.stack.flash_always,
            transposes=_transposes(scenario),
        )

    def forward_s(self, unit: UnitSums) -> float:
        """One forward."""
        return (
            self._products_s(unit)
            + self._attention_s(unit, 1.0)
            + self._adapters_s(unit, 1.0)
            + self._dequantise_s(unit)
            + self.elementwise_s(unit)
        )

    def backward_s(self, unit: UnitSums) -> float:
        """One backward: gradients of inputs and of what learns."""
        moved = self.backward * self._saved_bytes(unit) + 2.0 * (unit.dense_grad_bytes + self._transposed_bytes(unit))
        return (
            self._gradients_s(unit)
            + self._attention_s(unit, 2.0 if self._keeps_scores(unit) else _FLASH_BACKWARD)
            + self._adapters_s(unit, 2.0)
            + self._dequantise_s(unit)
            + moved / self.rates.memory
        )

    def again_s(self, unit: UnitSums) -> float:
        """One recomputation: a forward without what was kept of it."""
        return (
            unit.products_again_frac * (self._products_s(unit) + self._adapters_s(unit, 1.0))
            + (self._attention_s(unit, 1.0) if unit.attention_again else 0.0)
            + self._dequantise_s(unit)
            + self.elementwise_s(unit)
        )

    def launches(self, unit: UnitSums) -> float:
        """Of one forward; a narrow format casts weight and input of each matrix, of each expert by itself.

        A program that fuses element-wise work launches as much less as it moves less.
        """
        narrow = self.casts and unit.kind == "block"
        return self.stack_fused * (unit.num_kernels + (2.0 * unit.products.copies if narrow else 0.0))

    def elementwise_s(self, unit: UnitSums) -> float:
        """Everything but products and attention, forward: bytes of what is kept, and casts of weights."""
        moved = self.forward * self._saved_bytes(unit) + 3.0 * unit.cast_bytes + self._transposed_bytes(unit)
        return moved / self.rates.memory

    def _transposed_bytes(self, unit: UnitSums) -> float:
        """Of a pass of convolutions over channels-first images: inputs and outputs (what is kept) read and written."""
        if not self.transposes or unit.map_flops <= 0.0 or unit.name == _MIXED:
            return 0.0
        return 2.0 * saved_bytes(unit, self.batch)

    def _saved_bytes(self, unit: UnitSums) -> float:
        """What is kept, and (as if kept) what launches that keep nothing pass over."""
        kept = saved_bytes(unit, self.batch)
        kept += self.loose * unit.loose_kernels * unit.input_bytes * self.batch.tokens
        if unit.saved_bytes_per_key and not self.scores:
            kept -= self.batch.tokens * unit.saved_bytes_per_key * self.batch.seq_len
        return kept

    def _keeps_scores(self, unit: UnitSums) -> bool:
        return self.scores and unit.saved_bytes_per_key > 0.0

    def _products_s(self, unit: UnitSums) -> float:
        sums, rows = unit.products, self.batch.tokens
        maps_s = unit.map_flops * rows / self._map_rate(unit)
        if sums.flops <= 0.0:
            return maps_s
        flops_s = self._rates_for(unit).products_s(sums, rows)
        return maps_s + max(flops_s, self._product_bytes(unit) / self.rates.memory) + self._casts_s(unit)

    def _gradients_s(self, unit: UnitSums) -> float:
        sums, rows, learning = unit.products, self.batch.tokens, unit.learning_frac
        maps_s = unit.map_flops * rows * (1.0 + learning) / self._map_rate(unit)
        if sums.flops <= 0.0:
            return maps_s
        rates = self._rates_for(unit)
        flops_s = rates.input_gradients_s(sums, rows) + learning * rates.weight_gradients_s(sums, rows)
        bytes_s = (1.0 + learning) * self._product_bytes(unit) / self.rates.memory
        return maps_s + max(flops_s, bytes_s) + (1.0 + learning) * self._casts_s(unit)

    def _map_rate(self, unit: UnitSums) -> float:
        """Of convolutions; of a few channels a group they leave most of the matrix units idle."""
        return self.rates.matmul * self.map_frac * (self.grouped_frac if unit.name == _GROUPED else 1.0)

    def _rates_for(self, unit: UnitSums) -> Rates:
        """fp8 products at their own peak; beside quantised weights, what is not quantised may run in fp32."""
        if self.narrow is not None and (unit.products.dtype is not None or (self.casts and unit.kind == "block")):
            return self.narrow
        return self.wide if self.wide is not None and not unit.quantised_bytes else self.rates

    def _product_bytes(self, unit: UnitSums) -> float:
        """Weights read once, inputs read and outputs written."""
        edges = unit.products.taken_depth + unit.products.taken_columns
        return unit.weight_bytes + self.element_bytes * self.batch.tokens * edges

    def _casts_s(self, unit: UnitSums) -> float:
        """Inputs cast to a narrower format: read for their largest value and for the cast, written at one byte."""
        elements = unit.products.cast_elements
        if self.casts and unit.kind == "block" and not elements:
            elements = unit.products.taken_depth
        moved = elements * self.batch.tokens * (2.0 * self.element_bytes + 1.0) * self.fused
        return moved / self.rates.memory

    def _attention_s(self, unit: UnitSums, times: float) -> float:
        """Scores and values: fused, or (where scores are kept) two batched products over the whole square."""
        if unit.attention is None:
            return 0.0
        flops = unit.attention.flops_per_token(self.batch.seq_len) * self.batch.tokens * times
        rates = self.wide or self.rates
        if self._keeps_scores(unit):
            whole = 2.0 if unit.attention.causal else 1.0
            return flops * whole / (rates.matmul * self.score_frac)
        return flops * (1.0 + self.half_span / self.batch.seq_len) / (rates.attention * self.kernel_frac)

    def _adapters_s(self, unit: UnitSums, times: float) -> float:
        """Thin products and the passes over inputs and outputs around them: three reads or writes of each."""
        if unit.adapter_flops <= 0.0:
            return 0.0
        flops_s = unit.adapter_flops * self.batch.tokens * times / (_THIN_FRAC * self.rates.matmul)
        moved = 3.0 * self.fused * unit.adapter_elements * self.element_bytes * self.batch.tokens * times
        return max(flops_s, moved / self.rates.memory)

    def _dequantise_s(self, unit: UnitSums) -> float:
        """Packed weights read and their 16-bit copy written, by a kernel that reaches a share of the bandwidth."""
        moved = unit.quantised_bytes + unit.dequantised_bytes
        return moved / (self.dequantise_frac * self.rates.memory)


def _transposes(scenario: Scenario) -> bool:
    """Whether convolutions turn their tensors around for the tensor cores, which take channels last (16 bits)."""
    device = scenario.cluster.device
    has_units = device.compute_capability is not None and device.compute_capability >= _TENSOR_CORES
    return has_units and scenario.ledger.compute_bytes <= 2.0 and not scenario.stack.channels_last


def _kernel_frac(scenario: Scenario) -> float:
    """Share of a native kernel's rate: FlashAttention 2 issues Ampere's instructions, one or two generations old."""
    capability = scenario.cluster.device.compute_capability
    if scenario.native_attention or capability is None:
        return 1.0
    generations = {9: 1, 10: 2}.get(capability[0], 0)
    return float(scenario.efficiency.constants["old_attention"] ** generations) * scenario.stack.flash_frac
