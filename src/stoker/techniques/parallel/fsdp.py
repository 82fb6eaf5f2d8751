"""FSDP2 (torch.distributed.fsdp.fully_shard): weights, gradients and state sharded over dp_shard ranks.

Units are the blocks, and one root unit of everything else. A block is gathered for forward and again for backward of
every micro-batch; the root is gathered once and kept from forward to backward. Gradients are reduce-scattered in fp32
after every micro-batch, so that unsharded gradients never pile up. Frozen weights are gathered like all others, which
is why LoRA under FSDP can be slower than on one GPU; they send no gradient.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from stoker.core.ledger import Ledger, ModuleGroup
from stoker.core.run_config import Parallel, RunConfig
from stoker.techniques.parallel.gradient_bytes import weight_bytes
from stoker.techniques.protocols import Collective

if TYPE_CHECKING:
    import torch

_REDUCE_BYTES: Final = 4.0  # gradients cross the wire in fp32
_PREFETCHED: Final = 2  # the block at work and the one gathered ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class FSDP:
    """Full sharding within dp_shard."""

    name: ClassVar[str] = "fsdp"

    def matches(self, parallel: Parallel) -> bool:
        """Shards only (HSDP, tensor and pipeline parallel are not built yet)."""
        return parallel.dp_shard > 1 and parallel.world_size == parallel.dp_shard

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        """Weights, masters, gradients and state over dp_shard ranks."""
        shards = parallel.dp_shard
        return ledger.map_groups(
            lambda group: replace(group, weight_shards=shards, grad_shards=shards, state_shards=shards), by=self.name
        )

    def collectives(self, ledger: Ledger, config: RunConfig) -> tuple[Collective, ...]:
        """All-gathers and reduce-scatters of a step, by unit; the first gather and the root's scatter are exposed."""
        ranks, micro_batches = config.parallel.dp_shard, config.gradient_accumulation_steps
        blocks, root = _units(ledger)
        result: list[Collective] = []
        for group in blocks:
            gathers = 2 if group.in_backward else 1
            result.append(_all_gather(weight_bytes(group), ranks, gathers * group.repeats * micro_batches, 0.9))
            result.append(_reduce_scatter((group,), ranks, group.repeats * micro_batches, 0.9))
        root_bytes = sum(group.repeats * weight_bytes(group) for group in root)
        result.append(_all_gather(root_bytes, ranks, micro_batches, 0.0))
        result.append(_reduce_scatter(root, ranks, micro_batches, 0.0))
        return tuple(item for item in result if item.num_bytes > 0 and item.count > 0)

    def buffer_bytes(self, ledger: Ledger, config: RunConfig) -> tuple[float, float]:
        """(flat all-gather output and fp32 reduce-scatter input of the largest unit, gathered weights) per rank."""
        blocks, root = _units(ledger)
        largest = max((weight_bytes(group) for group in blocks), default=0.0)
        root_bytes = sum(group.repeats * weight_bytes(group) for group in root)
        scattered = max([_reduced_bytes((group,)) for group in blocks] + [_reduced_bytes(root)], default=0.0)
        return max(largest, root_bytes) + scattered, _PREFETCHED * largest + root_bytes

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        """The model with its parameters sharded in place, over the default process group."""
        from stoker.techniques.parallel.sharding import shard_model

        return shard_model(model, parallel.dp_shard)


def _units(ledger: Ledger) -> tuple[tuple[ModuleGroup, ...], tuple[ModuleGroup, ...]]:
    """(groups that are units of their own, groups of the root unit)."""
    blocks = tuple(group for group in ledger.groups if group.kind == "block")
    return blocks, tuple(group for group in ledger.groups if group.kind != "block")


def _reduced_bytes(groups: tuple[ModuleGroup, ...]) -> float:
    """fp32 gradient bytes of one unit: one copy of a block, or the whole root."""
    return _REDUCE_BYTES * sum(g.trainable * (1 if g.kind == "block" else g.repeats) for g in groups)


def _all_gather(num_bytes: float, ranks: int, count: int, overlapped: float) -> Collective:
    return Collective(operation="all_gather", num_bytes=num_bytes, ranks=ranks, count=count, overlapped_frac=overlapped)


def _reduce_scatter(groups: tuple[ModuleGroup, ...], ranks: int, count: int, overlapped: float) -> Collective:
    return Collective(
        operation="reduce_scatter",
        num_bytes=_reduced_bytes(groups),
        ranks=ranks,
        count=count,
        overlapped_frac=overlapped,
    )
