"""DDP: a whole copy on every rank; gradients are all-reduced in buckets of 25 MiB while backward still runs.

Gradients live in the buckets themselves (gradient_as_bucket_view), so no second copy of them exists. With several
micro-batches only the last one sends.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from stoker.core.ledger import Ledger
from stoker.core.run_config import Parallel, RunConfig
from stoker.core.units import MIB
from stoker.techniques.parallel.gradient_bytes import gradient_bytes
from stoker.techniques.protocols import Collective

if TYPE_CHECKING:
    import torch

BUCKET_BYTES: Final = 25 * MIB  # torch's default bucket_cap_mb


@dataclass(frozen=True, slots=True, kw_only=True)
class DDP:
    """torch.nn.parallel.DistributedDataParallel."""

    name: ClassVar[str] = "ddp"

    def matches(self, parallel: Parallel) -> bool:
        """Copies only."""
        return parallel.dp_replicate > 1 and parallel.world_size == parallel.dp_replicate

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        """Every rank holds everything."""
        return replace(ledger, passes=(*ledger.passes, self.name))

    def collectives(self, ledger: Ledger, config: RunConfig) -> tuple[Collective, ...]:
        """One all-reduce a bucket and step; all but the last bucket hide under backward."""
        total = sum(group.repeats * gradient_bytes(group) for group in ledger.groups)
        if not total:
            return ()
        buckets = math.ceil(total / BUCKET_BYTES)
        return (
            Collective(
                operation="all_reduce",
                num_bytes=total / buckets,
                ranks=config.parallel.dp_replicate,
                count=buckets,
                overlapped_frac=(buckets - 1) / buckets,
            ),
        )

    def buffer_bytes(self, ledger: Ledger, config: RunConfig) -> tuple[float, float]:
        """None: buckets are the gradients."""
        return 0.0, 0.0

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        """The model in DDP's wrapper; a parameter that got no gradient in the pre-flight must be frozen first."""
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(
            model, gradient_as_bucket_view=True, find_unused_parameters=False, broadcast_buffers=False
        )
