"""Pipeline parallel, 1F1B and interleaved: layers over `pp` stages, micro-batches one behind the other.

A step waits (p - 1) / v times for one micro-batch: a bubble of (p - 1) / (m v) of the work (Narayanan et al.,
2104.04473, section 2.2). The first stage keeps p micro-batches in flight, the last one; interleaved p + (p - 1) / v and
p - (p - 1) / v (2205.05198, section 4.2.3). The first stage holds the embedding, the last the norm, the head and the
logits, so memory is that of the fuller of the two and time that of the last, on which the others wait.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from stoker.core.i18n import _
from stoker.core.ledger import Ledger, ModelArch, ModuleGroup
from stoker.core.run_config import Parallel, RunConfig
from stoker.techniques.parallel.priced_only import refuse
from stoker.techniques.protocols import Collective

if TYPE_CHECKING:
    import torch


class Pipeline:
    """Over `pp` stages of `virtual_stages` chunks each."""

    __slots__ = ()

    name: ClassVar[str] = "pipeline"
    can_run: ClassVar[bool] = False

    def matches(self, parallel: Parallel) -> bool:
        return parallel.kind == "auto" and parallel.pp > 1

    def problem(self, arch: ModelArch, parallel: Parallel) -> str | None:
        """Every chunk needs a layer; what does not divide evenly makes the fullest stage fuller, which is priced."""
        layers = sum(group.repeats for group in arch.groups if group.kind == "block")
        chunks = parallel.pp * parallel.virtual_stages
        if layers >= chunks:
            return None
        return _("{name}: {layers} layers are fewer than its {chunks} chunks").format(
            name=f"pp {parallel.pp}", layers=layers, chunks=chunks
        )

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        """The last stage (time hangs on it), and both ends as `stages` (memory hangs on the fuller)."""
        first, last = split_stages(ledger, parallel.pp)
        stages, chunks = parallel.pp, parallel.virtual_stages
        extra = (stages - 1) / chunks if chunks > 1 else 0.0
        whole = ledger.num_trainable
        ends = (
            replace(first, in_flight=stages + extra, all_trainable=whole),
            replace(last, in_flight=stages - extra if chunks > 1 else 1.0, all_trainable=whole),
        )
        return replace(ends[1], stages=ends, passes=(*ledger.passes, self.name))

    def collectives(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[Collective, ...]:
        """The block's output to the next stage and its gradient back, once a chunk and micro-batch."""
        if tokens <= 0:
            return ()
        parallel = config.parallel
        spread = parallel.tp if parallel.sequence_parallel else 1
        return (
            Collective(
                operation="send",
                num_bytes=tokens * ledger.arch.hidden_size * ledger.compute_bytes / spread,
                ranks=2,
                count=2 * parallel.virtual_stages * config.gradient_accumulation_steps,
                overlapped_frac=0.0,
                stride=parallel.world_size // parallel.pp,
                in_micro_batch=True,
            ),
        )

    def buffer_bytes(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[float, float]:
        """What is being sent and received."""
        return 4.0 * tokens * ledger.arch.hidden_size * ledger.compute_bytes, 0.0

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        refuse(f"pp {parallel.pp}")


def bubble_frac(parallel: Parallel, micro_batches: int) -> float:
    """Idle time over working time of a stage: (p - 1) / (m v)."""
    if parallel.kind != "auto" or parallel.pp <= 1:
        return 0.0
    return (parallel.pp - 1) / (micro_batches * parallel.virtual_stages)


def split_stages(ledger: Ledger, stages: int) -> tuple[Ledger, Ledger]:
    """The first and the last stage of `ledger`; both with as many blocks as the fullest one."""
    blocks = [group for group in ledger.groups if group.kind == "block"]
    most = ceil(sum(group.repeats for group in blocks) / stages)
    shared = {group.name: count for group, count in zip(blocks, _dealt(blocks, most), strict=True)}
    names = [group.name for group in ledger.groups]
    start = min((names.index(name) for name in shared), default=0)
    kept = [replace(g, repeats=shared.get(g.name, g.repeats)) for g in ledger.groups]
    here = [g for g in kept if g.repeats > 0]
    before = {g.name for g in ledger.groups[:start]}
    first = tuple(g for g in here if g.name in before or g.name in shared)
    last = tuple(g for g in here if g.name not in before)
    if ledger.arch.tie_word_embeddings:  # the head is the embedding: the last stage holds a copy of it
        tied = tuple(replace(g, saved=(), linears=(), num_kernels=1) for g in ledger.groups if g.kind == "embedding")
        last = (*tied, *last)
    return replace(ledger, groups=first, rank_outputs=0), replace(ledger, groups=last)


def _dealt(blocks: Sequence[ModuleGroup], most: int) -> list[int]:
    """How many of `most` layers come from each kind of block: by their shares, the largest remainders first."""
    total = sum(group.repeats for group in blocks)
    exact = [group.repeats * most / total for group in blocks]
    counts = [int(share) for share in exact]
    order = sorted(range(len(blocks)), key=lambda i: counts[i] - exact[i])
    for index in order[: most - sum(counts)]:
        counts[index] += 1
    return counts
