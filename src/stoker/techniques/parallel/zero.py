"""ZeRO stages 1 and 2 (1910.02054): weights whole on every rank; state (1), and gradients (2), over the shard ranks.

Stage 1 scatters gradients once a step, stage 2 after every micro-batch, bucket by bucket under backward; after the
update every rank gathers the new weights, which nothing hides. Together as many bytes as DDP's all-reduce.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from stoker.core.ledger import Ledger, ModelArch, ModuleGroup
from stoker.core.run_config import Parallel, RunConfig
from stoker.techniques.parallel.gradient_bytes import gradient_bytes
from stoker.techniques.parallel.priced_only import refuse
from stoker.techniques.parallel.rank_share import data_shards
from stoker.techniques.protocols import Collective

if TYPE_CHECKING:
    import torch

BUCKET_BYTES: Final = 1e9  # DeepSpeed's default reduce_bucket_size: 5e8 elements of 2 bytes


class Zero:
    """Over dp_shard x cp ranks."""

    __slots__ = ()

    name: ClassVar[str] = "zero"
    can_run: ClassVar[bool] = False

    def matches(self, parallel: Parallel) -> bool:
        return parallel.kind == "auto" and parallel.zero_stage < 3 and parallel.shard_ranks > 1

    def problem(self, arch: ModelArch, parallel: Parallel) -> str | None:
        return None

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        """State, and from stage 2 gradients, over the shard ranks."""
        ranks, sharded = parallel.shard_ranks, parallel.zero_stage == 2

        def change(group: ModuleGroup) -> ModuleGroup:
            shards = data_shards(group, ranks)
            return replace(group, state_shards=shards, grad_shards=shards if sharded else 1)

        return ledger.map_groups(change, by=f"{self.name}{parallel.zero_stage}")

    def collectives(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[Collective, ...]:
        """A reduce-scatter of the gradients and an all-gather of the updated weights."""
        parallel = config.parallel
        rounds = config.gradient_accumulation_steps if parallel.zero_stage == 2 else 1
        gradients = sum(group.repeats * gradient_bytes(group) for group in ledger.groups)
        if not gradients:
            return ()
        updated = sum(
            group.repeats
            * (
                group.base_trainable * group.weight_bytes_per_param
                + group.adapter_params * group.adapter_bytes_per_param
            )
            for group in ledger.groups
        )
        scatter = Collective(
            operation="reduce_scatter",
            num_bytes=gradients,
            ranks=parallel.shard_ranks,
            count=rounds,
            overlapped_frac=0.9,
            stride=parallel.tp,
        )
        return (scatter, replace(scatter, operation="all_gather", num_bytes=updated, count=1, overlapped_frac=0.0))

    def buffer_bytes(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[float, float]:
        """Stage 2: two buckets under way, or all gradients; stage 1 scatters the gradients where they lie."""
        if config.parallel.zero_stage == 1:
            return 0.0, 0.0
        gradients = sum(group.repeats * gradient_bytes(group) for group in ledger.groups)
        return min(gradients, 2.0 * BUCKET_BYTES), 0.0

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        refuse(f"zero_stage {parallel.zero_stage}")
