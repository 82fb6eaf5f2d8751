"""torch.nn.DataParallel: one process, one thread a GPU. A trap that is priced so that nobody falls into it.

Before every forward the weights are copied to each GPU, afterwards the outputs are gathered on GPU 0, and gradients
are summed there; only GPU 0 holds the optimizer's state, so it is the fullest. All threads launch kernels under one
interpreter lock, so launches of N replicas follow each other.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from stoker.core.i18n import _
from stoker.core.ledger import Ledger, ModelArch
from stoker.core.run_config import Parallel, RunConfig
from stoker.techniques.parallel.gradient_bytes import gradient_bytes, weight_bytes
from stoker.techniques.parallel.priced_only import refuse
from stoker.techniques.protocols import Collective

if TYPE_CHECKING:
    import torch


class DataParallel:
    """Over dp_replicate GPUs of one process; the ledger is GPU 0's."""

    __slots__ = ()

    name: ClassVar[str] = "data_parallel"
    can_run: ClassVar[bool] = False

    def matches(self, parallel: Parallel) -> bool:
        return parallel.kind == "data_parallel" and parallel.world_size > 1

    def problem(self, arch: ModelArch, parallel: Parallel) -> str | None:
        """Copies only."""
        return None if parallel.world_size == parallel.dp_replicate else _("data_parallel takes dp_replicate alone")

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        """GPU 0 holds everything."""
        return replace(ledger, passes=(*ledger.passes, self.name))

    def collectives(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[Collective, ...]:
        """Every micro-batch: weights out, outputs and gradients in. Nothing of it overlaps."""
        ranks, rounds = config.parallel.dp_replicate, config.gradient_accumulation_steps
        sizes = {
            "weights": sum(group.repeats * weight_bytes(group) for group in ledger.groups),
            "gradients": sum(group.repeats * gradient_bytes(group) for group in ledger.groups),
            "outputs": (ranks - 1) * _output_bytes(ledger, tokens),
        }
        return tuple(
            Collective(operation="broadcast", num_bytes=size, ranks=ranks, count=rounds, overlapped_frac=0.0)
            for size in sizes.values()
            if size > 0
        )

    def buffer_bytes(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[float, float]:
        """GPU 0 holds the outputs of all GPUs."""
        return config.parallel.dp_replicate * _output_bytes(ledger, tokens), 0.0

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        refuse("data_parallel")


def _output_bytes(ledger: Ledger, tokens: float) -> float:
    """Logits of one GPU: for every token where the outputs are a vocabulary, else too few to count."""
    is_vocabulary = ledger.num_outputs == ledger.arch.vocab_size
    return tokens * ledger.num_outputs * ledger.compute_bytes if is_vocabulary else 0.0
