"""Seconds of computation of one micro-batch on one device, by class of operation.

Each class takes what its FLOPs or its bytes cost at the family's rates (`compute_rates.py`, `compute_units.py`) plus
its shortest kernels; the host issues kernels meanwhile, so a pass takes the longer of the two. FLOPs are 2 a
multiply-add, forward; backward is once more for the inputs and once more for the weights that learn (docs/math.md,
section 2).
"""

from dataclasses import dataclass

from stoker.core.hardware import Device
from stoker.estimators.compute_rates import rates_of
from stoker.estimators.compute_units import UnitCosts
from stoker.estimators.scenario import Batch, Scenario
from stoker.techniques.capture import capture
from stoker.techniques.loss import loss
from stoker.techniques.optimizer import optimizer


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


def micro_batch_time(scenario: Scenario, batch: Batch) -> MicroBatchTime:
    """Time of `batch` through the model, once forward and once backward."""
    costs = UnitCosts.of(scenario, batch)
    constants = scenario.efficiency.constants
    forward = backward = 0.0
    kernels = again = below = 0.0
    head_again = scenario.task == "causal_lm" and loss(scenario.config.loss).recomputes_head
    for unit in scenario.sums.units:
        once = costs.forward_s(unit)
        forward += unit.repeats * once
        launched = unit.repeats * costs.launches(unit)
        kernels += launched
        if not unit.in_backward:
            continue
        below += launched
        backward += unit.repeats * costs.backward_s(unit)
        if unit.recomputed or (unit.kind == "head" and head_again):
            backward += unit.repeats * costs.again_s(unit)
            again += launched
    loss_s = _loss_s(scenario, batch, costs.rates.memory)
    left = capture(scenario.config.capture).kernel_frac
    kernels, below, again = kernels * left, below * left, again * left
    host, fixed = costs.rates.shares.host_s_per_kernel * scenario.stack.host_frac, constants["host_s_per_micro_batch"]
    hooks = 0.0
    parallel = scenario.config.parallel
    if parallel.zero_stage == 3 and parallel.shard_ranks > 1:
        hooks = constants["host_s_per_sharded_unit"] * sum(u.repeats for u in scenario.sums.units if u.kind == "block")
    shortest = costs.rates.shares.kernel_s
    offloaded_s = _offloaded_s(scenario, batch)
    overlaps = scenario.cluster.device.kind != "cpu"
    return MicroBatchTime(
        forward=PassTime(
            device_s=max(forward + loss_s / 3.0 + kernels * shortest, offloaded_s),
            host_s=kernels * host + fixed + hooks,
            overlaps=overlaps,
        ),
        backward=PassTime(
            device_s=max(backward + loss_s / 1.5 + (2.0 * below + again) * shortest, offloaded_s),
            host_s=(2.0 * constants["host_backward"] * below + again) * host + hooks,
            overlaps=overlaps,
        ),
    )


def optimizer_time(scenario: Scenario) -> PassTime:
    """Clipping and the update: bytes over bandwidth, any matrix products, and a fixed host part (case 35)."""
    technique = optimizer(scenario.optimizer)
    moved, shards = 0.0, 1.0
    for group in scenario.ledger.groups:
        gradient, adapter = group.grad_bytes_per_param, group.adapter_bytes_per_param
        stepped = technique.step_bytes_per_param(group.weight_bytes_per_param, group.master_bytes_per_param, gradient)
        base = group.base_trainable * (stepped + 2.0 * gradient)  # twice more: the norm, and zeroing
        adapters = group.adapter_params * (technique.step_bytes_per_param(adapter, 0.0, adapter) + 2.0 * adapter)
        moved += group.repeats * (base + adapters) / group.state_shards
        shards = max(shards, group.state_shards)
    rates = rates_of(scenario.efficiency, scenario.cluster.device, scenario.ledger.compute_dtype)
    products_s = scenario.ledger.step_flops / shards / rates.matmul
    host_s = scenario.efficiency.constants["host_s_per_optimizer_step"]
    return PassTime(device_s=moved / rates.memory + products_s, host_s=host_s)


def compute_dtype(scenario: Scenario, device: Device) -> str:
    """The format whose peak counts: the ledger's, or fp32 where the device has no units for that (never TF32)."""
    wanted = scenario.ledger.compute_dtype
    return wanted if device.supports(wanted) else "fp32"


def _loss_s(scenario: Scenario, batch: Batch, bytes_per_s: float) -> float:
    """Every byte of the logits and their copies is written once and read once, in one piece or in chunks."""
    rows = batch.tokens if scenario.task == "causal_lm" else batch.samples
    alive = loss("eager").logits_bytes(rows, scenario.ledger.num_outputs, scenario.ledger.compute_bytes)
    return 2.0 * alive / bytes_per_s


def _offloaded_s(scenario: Scenario, batch: Batch) -> float:
    """Block inputs that go to host memory (and come back in backward), beside the computing."""
    moved = sum(unit.repeats * unit.host_bytes for unit in scenario.sums.units) * batch.tokens
    return moved / scenario.cluster.device.pcie_bytes_per_s if moved else 0.0
