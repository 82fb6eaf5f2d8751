"""Seconds of computation of one micro-batch on one device, by class of operation.

Each class takes max(compute, bytes) on the device plus its shortest kernels; the host issues kernels meanwhile, so a
pass takes the longer of the two. FLOPs are 2 a multiply-add, forward; backward is once more for the inputs and once
more for the weights that learn (docs/math.md, section 2).
"""

from dataclasses import dataclass

from stoker.core.efficiency import SpeedShares
from stoker.core.hardware import Device
from stoker.estimators.ledger_sums import UnitSums
from stoker.estimators.memory import saved_bytes
from stoker.estimators.scenario import Batch, Scenario
from stoker.techniques.capture import capture
from stoker.techniques.loss import loss
from stoker.techniques.optimizer import optimizer

_FLASH_BACKWARD = 2.5  # fused attention recomputes its scores in backward (FlashAttention-2, 2307.08691, section 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTime:
    """Seconds of one pass: on the device, and of the host that issues it, beside it or (a CPU) before each kernel."""

    device_s: float
    host_s: float
    overlaps: bool = True

    @property
    def total_s(self) -> float:
        return max(self.device_s, self.host_s) if self.overlaps else self.device_s + self.host_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchTime:
    """Forward and backward (with recompute) of one micro-batch."""

    forward: PassTime
    backward: PassTime

    @property
    def device_s(self) -> float:
        return self.forward.device_s + self.backward.device_s

    @property
    def total_s(self) -> float:
        return self.forward.total_s + self.backward.total_s


@dataclass(frozen=True, slots=True)
class _Rates:
    """What `device` reaches in the compute dtype: FLOP/s of large products and of attention, bytes/s."""

    matmul: float
    attention: float
    memory: float
    shares: SpeedShares


def micro_batch_time(scenario: Scenario, batch: Batch) -> MicroBatchTime:
    """Time of `batch` through the model, once forward and once backward."""
    rates = _rates(scenario)
    constants = scenario.efficiency.constants
    forward = backward = 0.0
    kernels = again = below = 0.0
    head_again = scenario.task == "causal_lm" and loss(scenario.config.loss).recomputes_head
    for unit in scenario.sums.units:
        once = _unit_forward_s(unit, batch, rates, constants["traffic_forward"])
        forward += unit.repeats * once
        kernels += unit.repeats * unit.num_kernels
        if not unit.in_backward:
            continue
        below += unit.repeats * unit.num_kernels
        backward += unit.repeats * _unit_backward_s(unit, batch, rates, constants["traffic_backward"])
        if unit.recomputed or (unit.kind == "head" and head_again):
            backward += unit.repeats * once
            again += unit.repeats * unit.num_kernels
    loss_s = _loss_s(scenario, batch, rates)
    left = capture(scenario.config.capture).kernel_frac
    kernels, below, again = kernels * left, below * left, again * left
    host, fixed = rates.shares.host_s_per_kernel, constants["host_s_per_micro_batch"]
    hooks = 0.0
    if scenario.config.parallel.dp_shard > 1:
        hooks = constants["host_s_per_sharded_unit"] * sum(u.repeats for u in scenario.sums.units if u.kind == "block")
    shortest = rates.shares.kernel_s
    overlaps = scenario.cluster.device.kind != "cpu"
    return MicroBatchTime(
        forward=PassTime(
            device_s=forward + loss_s / 3.0 + kernels * shortest,
            host_s=kernels * host + fixed + hooks,
            overlaps=overlaps,
        ),
        backward=PassTime(
            device_s=backward + loss_s / 1.5 + (2.0 * below + again) * shortest,
            host_s=(2.0 * constants["host_backward"] * below + again) * host + hooks,
            overlaps=overlaps,
        ),
    )


def optimizer_time(scenario: Scenario) -> PassTime:
    """Clipping and the update: bytes read and written over bandwidth, and a fixed host part (case 35)."""
    technique = optimizer(scenario.optimizer)
    moved = 0.0
    for group in scenario.ledger.groups:
        gradient, adapter = group.grad_bytes_per_param, group.adapter_bytes_per_param
        stepped = technique.step_bytes_per_param(group.weight_bytes_per_param, group.master_bytes_per_param, gradient)
        base = group.base_trainable * (stepped + 2.0 * gradient)  # twice more: the norm, and zeroing
        adapters = group.adapter_params * (technique.step_bytes_per_param(adapter, 0.0, adapter) + 2.0 * adapter)
        moved += group.repeats * (base + adapters) / group.state_shards
    host_s = scenario.efficiency.constants["host_s_per_optimizer_step"]
    return PassTime(device_s=moved / _rates(scenario).memory, host_s=host_s)


def compute_dtype(scenario: Scenario, device: Device) -> str:
    """The format whose peak counts: the ledger's, or fp32 where the device has no units for that (never TF32)."""
    wanted = scenario.ledger.compute_dtype
    return wanted if device.supports(wanted) else "fp32"


def _rates(scenario: Scenario) -> _Rates:
    device = scenario.cluster.device
    dtype = compute_dtype(scenario, device)
    shares = scenario.efficiency.speed(device, dtype)
    peak = device.peak_flops_per_s.get(dtype) or max(device.peak_flops_per_s.values())
    return _Rates(
        peak * shares.matmul_frac, peak * shares.attention_frac, device.memory_bytes_per_s * shares.memory_frac, shares
    )


def _matmul_s(unit: UnitSums, batch: Batch, rates: _Rates, times: float) -> float:
    """`times` passes over the unit's matrices: max of FLOPs at the rate of this shape, and of reading the weights."""
    rows = batch.tokens
    work = unit.matmul_flops * rows * times
    if work <= 0.0:
        return 0.0
    half = rates.shares.half_tokens
    shape = rows / (rows + half) * (unit.width / (unit.width + half) if unit.width else 1.0)
    return max(work / (rates.matmul * shape), unit.weight_bytes * times / rates.memory)


def _attention_s(unit: UnitSums, batch: Batch, rates: _Rates, times: float) -> float:
    if unit.attention is None:
        return 0.0
    return unit.attention.flops_per_token(batch.seq_len) * batch.tokens * times / rates.attention


def _adapter_s(unit: UnitSums, batch: Batch, rates: _Rates, times: float) -> float:
    """Adapters are thin: a sixteenth of the rank's work reaches a quarter of the rate of a full product."""
    return unit.adapter_flops * batch.tokens * times / (0.25 * rates.matmul)


def _unit_forward_s(unit: UnitSums, batch: Batch, rates: _Rates, traffic: float) -> float:
    moved = traffic * saved_bytes(unit, batch) + unit.cast_bytes * 3.0
    return (
        _matmul_s(unit, batch, rates, 1.0)
        + _attention_s(unit, batch, rates, 1.0)
        + _adapter_s(unit, batch, rates, 1.0)
        + moved / rates.memory
    )


def _unit_backward_s(unit: UnitSums, batch: Batch, rates: _Rates, traffic: float) -> float:
    moved = traffic * saved_bytes(unit, batch) + 2.0 * unit.dense_grad_bytes
    return (
        _matmul_s(unit, batch, rates, 1.0 + unit.learning_frac)
        + _attention_s(unit, batch, rates, _FLASH_BACKWARD)
        + _adapter_s(unit, batch, rates, 2.0)
        + moved / rates.memory
    )


def _loss_s(scenario: Scenario, batch: Batch, rates: _Rates) -> float:
    """Every byte of the logits and their copies is written once and read once, in one piece or in chunks."""
    rows = batch.tokens if scenario.task == "causal_lm" else batch.samples
    outputs = scenario.ledger.num_outputs
    alive = loss("eager").logits_bytes(rows, outputs, scenario.ledger.compute_bytes)
    return 2.0 * alive / rates.memory
