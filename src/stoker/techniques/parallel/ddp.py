"""DDP: a whole copy on every rank; gradients are all-reduced in buckets of 25 MiB while backward still runs.

Gradients live in the buckets themselves (gradient_as_bucket_view), so no second copy of them exists. With several
micro-batches only the last one sends. Beside sharding (HSDP) the copies are shards: after every reduce-scatter of a
unit its shard is all-reduced over the copies.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from stoker.core.ledger import Ledger, ModelArch
from stoker.core.run_config import Parallel, RunConfig
from stoker.core.units import MIB
from stoker.techniques.parallel.gradient_bytes import gradient_bytes
from stoker.techniques.parallel.priced_only import refuse
from stoker.techniques.protocols import Collective

if TYPE_CHECKING:
    import torch

BUCKET_BYTES: Final = 25 * MIB  # torch's default bucket_cap_mb
_REDUCE_BYTES: Final = 4.0  # FSDP's gradients cross the wire in fp32


class DDP:
    """torch.nn.parallel.DistributedDataParallel; the outer half of HSDP."""

    __slots__ = ()

    name: ClassVar[str] = "ddp"
    can_run: ClassVar[bool] = True

    def matches(self, parallel: Parallel) -> bool:
        """Copies."""
        return parallel.kind == "auto" and parallel.dp_replicate > 1

    def problem(self, arch: ModelArch, parallel: Parallel) -> str | None:
        return None

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        """Every rank holds everything that the other axes leave it."""
        return replace(ledger, passes=(*ledger.passes, self.name))

    def collectives(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[Collective, ...]:
        """One all-reduce a bucket and step; all but the last bucket hide under backward. HSDP: one a unit."""
        parallel = config.parallel
        if parallel.shard_ranks > 1:
            return _over_copies(ledger, config)
        total = sum(group.repeats * gradient_bytes(group) for group in ledger.groups)
        if not total:
            return ()
        buckets = math.ceil(total / BUCKET_BYTES)
        return (
            Collective(
                operation="all_reduce",
                num_bytes=total / buckets,
                ranks=parallel.dp_replicate,
                count=buckets,
                overlapped_frac=(buckets - 1) / buckets,
                stride=parallel.tp,
            ),
        )

    def buffer_bytes(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[float, float]:
        """None: buckets are the gradients."""
        return 0.0, 0.0

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        """The model in DDP's wrapper; a parameter that got no gradient in the pre-flight must be frozen first."""
        if parallel.world_size != parallel.dp_replicate:
            refuse(parallel.label)
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(
            model, gradient_as_bucket_view=True, find_unused_parameters=False, broadcast_buffers=False
        )


def _over_copies(ledger: Ledger, config: RunConfig) -> tuple[Collective, ...]:
    """All-reduces of a rank's gradient shard over dp_replicate, as often as the sharding scatters."""
    parallel = config.parallel
    often = parallel.zero_stage > 1 and parallel.pp == 1
    rounds = config.gradient_accumulation_steps if often else 1
    width = _REDUCE_BYTES if parallel.zero_stage == 3 else None
    units = [g for g in ledger.groups if g.trainable]
    total = sum(
        g.repeats * (gradient_bytes(g) if width is None else width * g.trainable) / g.state_shards for g in units
    )
    calls = sum(g.repeats for g in units if g.kind == "block") + 1
    if not total:
        return ()
    return (
        Collective(
            operation="all_reduce",
            num_bytes=total / calls,
            ranks=parallel.dp_replicate,
            count=calls * rounds,
            overlapped_frac=(calls - 1) / calls,
            stride=parallel.shard_ranks * parallel.tp,
        ),
    )
