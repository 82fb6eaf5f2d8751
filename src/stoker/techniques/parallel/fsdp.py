"""FSDP2 (torch.distributed.fsdp.fully_shard), ZeRO stage 3: weights, gradients and state over dp_shard x cp ranks.

Units are the blocks, and one root unit of everything else. A block is gathered for forward and again for backward of
every micro-batch; the root is gathered once and kept from forward to backward. Gradients are reduce-scattered in fp32
after every micro-batch, so that unsharded gradients never pile up. Frozen weights are gathered like all others, which
is why LoRA under FSDP can be slower than on one GPU; they send no gradient.

Under a pipeline gathering for every micro-batch would cost m times as much, so weights are gathered once a step and
kept, and gradients are summed whole in fp32 and scattered once (torchtitan's default): a stage holds both.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from stoker.core.ledger import Ledger, ModelArch, ModuleGroup
from stoker.core.run_config import Parallel, RunConfig
from stoker.techniques.parallel.gradient_bytes import weight_bytes
from stoker.techniques.parallel.priced_only import refuse
from stoker.techniques.parallel.rank_share import data_shards
from stoker.techniques.protocols import Collective, CollectiveName

if TYPE_CHECKING:
    import torch

_REDUCE_BYTES: Final = 4.0  # gradients cross the wire in fp32
_PREFETCHED: Final = 2  # the block at work and the one gathered ahead
_OVERLAPPED: Final = 0.9  # of the blocks' traffic: all but the first gather and the last scatter


class FSDP:
    """Full sharding."""

    __slots__ = ()

    name: ClassVar[str] = "fsdp"
    can_run: ClassVar[bool] = True

    def matches(self, parallel: Parallel) -> bool:
        """Shards of everything; beside copies it is the inner half of HSDP."""
        return parallel.kind == "auto" and parallel.zero_stage == 3 and parallel.shard_ranks > 1

    def problem(self, arch: ModelArch, parallel: Parallel) -> str | None:
        return None

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        """Weights, masters, gradients and state over the shard ranks."""
        ranks = parallel.shard_ranks

        def change(group: ModuleGroup) -> ModuleGroup:
            shards = data_shards(group, ranks)
            casts = 0 if parallel.gathers_narrow else group.cast_bytes  # the gathered copy is the cast one
            return replace(group, weight_shards=shards, grad_shards=shards, state_shards=shards, cast_bytes=casts)

        return ledger.map_groups(change, by=self.name)

    def collectives(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[Collective, ...]:
        """All-gathers and reduce-scatters of a step, by unit; the first gather and the root's scatter are exposed."""
        once = config.parallel.pp > 1
        rounds = 1 if once else config.gradient_accumulation_steps
        blocks, root = _units(ledger)
        result: list[Collective] = []
        for group in blocks:
            gathers = 1 if once or not group.in_backward else 2
            size = _gathered_bytes(group, ledger, config)
            result += _calls("all_gather", group, size, config, gathers * group.repeats * rounds)
            result += _calls("reduce_scatter", group, _reduced_bytes((group,)), config, group.repeats * rounds)
        root_bytes = sum(group.repeats * _gathered_bytes(group, ledger, config) for group in root)
        plain = replace(root[0], expert_ranks=1) if root else None
        if plain is not None:
            result += _calls("all_gather", plain, root_bytes, config, rounds)
            result += _calls("reduce_scatter", plain, _reduced_bytes(root), config, rounds)
        return tuple(item for item in result if item.num_bytes > 0 and item.count > 0)

    def buffer_bytes(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[float, float]:
        """(flat all-gather output and fp32 reduce-scatter input of the largest unit, gathered weights) per rank."""
        blocks, root = _units(ledger)
        largest = max((_gathered_bytes(group, ledger, config) for group in blocks), default=0.0)
        root_bytes = sum(group.repeats * _gathered_bytes(group, ledger, config) for group in root)
        scattered = max([_reduced_bytes((group,)) for group in blocks] + [_reduced_bytes(root)], default=0.0)
        if config.parallel.pp > 1:
            whole = sum(group.repeats * _gathered_bytes(group, ledger, config) for group in ledger.groups)
            summed = _REDUCE_BYTES * sum(group.repeats * group.trainable for group in ledger.groups)
            return max(largest, root_bytes) + scattered, whole + summed
        return max(largest, root_bytes) + scattered, _PREFETCHED * largest + root_bytes

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        """The model with its parameters sharded in place, over the default process group."""
        if parallel.world_size != parallel.dp_shard:
            refuse(parallel.label)
        from stoker.techniques.parallel.sharding import shard_model

        return shard_model(model, parallel.dp_shard)


def _units(ledger: Ledger) -> tuple[tuple[ModuleGroup, ...], tuple[ModuleGroup, ...]]:
    """(groups that are units of their own, groups of the root unit)."""
    blocks = tuple(group for group in ledger.groups if group.kind == "block")
    return blocks, tuple(group for group in ledger.groups if group.kind != "block")


def _gathered_bytes(group: ModuleGroup, ledger: Ledger, config: RunConfig) -> float:
    """Weights of one copy as they cross the wire and lie gathered."""
    stored = weight_bytes(group)
    if not config.parallel.gathers_narrow:
        return stored
    return min(stored, (group.num_params + group.adapter_params) * ledger.compute_bytes)


def _reduced_bytes(groups: tuple[ModuleGroup, ...]) -> float:
    """fp32 gradient bytes of one unit: one copy of a block, or the whole root."""
    return _REDUCE_BYTES * sum(g.trainable * (1 if g.kind == "block" else g.repeats) for g in groups)


def _calls(
    operation: CollectiveName, group: ModuleGroup, num_bytes: float, config: RunConfig, count: int
) -> list[Collective]:
    """`count` calls for one unit; experts go over the ranks that hold the same ones, the rest over all."""
    parallel = config.parallel
    plain = Collective(
        operation=operation,
        num_bytes=num_bytes,
        ranks=parallel.shard_ranks,
        count=count,
        overlapped_frac=_OVERLAPPED if group.kind == "block" else 0.0,
        stride=parallel.tp,
    )
    if group.expert_ranks == 1 or not group.num_params:
        return [plain]
    share = group.expert_params / group.num_params
    same = max(parallel.shard_ranks // group.expert_ranks, 1)
    return [
        replace(plain, num_bytes=num_bytes * (1.0 - share)),
        replace(plain, num_bytes=num_bytes * share, ranks=same, stride=parallel.tp * group.expert_ranks),
    ]
