"""Expert parallel: the experts of a layer spread over `ep` of the data-parallel ranks; tokens travel to them.

Each rank keeps experts / ep and everything else whole. A token goes to its top_k experts and comes back: two
all-to-all of tokens x top_k x width each way, forward and backward. Load is taken as balanced: a rank computes as much
for others as others compute for it. `ep` adds no ranks of its own (Megatron, torchtitan).
"""

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from stoker.core.i18n import _
from stoker.core.ledger import Ledger, ModelArch, ModuleGroup
from stoker.core.run_config import Parallel, RunConfig
from stoker.techniques.parallel.priced_only import refuse
from stoker.techniques.parallel.rank_share import expert_params, with_params
from stoker.techniques.protocols import Collective

if TYPE_CHECKING:
    import torch


class ExpertParallel:
    """Over `ep` ranks."""

    __slots__ = ()

    name: ClassVar[str] = "expert"
    can_run: ClassVar[bool] = False

    def matches(self, parallel: Parallel) -> bool:
        return parallel.ep > 1

    def problem(self, arch: ModelArch, parallel: Parallel) -> str | None:
        """Experts must divide by `ep`, and the ranks that it is carved out of too."""
        counts = {lin.count for group in arch.groups for lin in group.linears if lin.active_frac < 1.0}
        if not counts:
            return _("{name}: the model has no experts").format(name=f"ep {parallel.ep}")
        if any(count % parallel.ep for count in counts):
            return _("{name}: {experts} experts do not divide by it").format(
                name=f"ep {parallel.ep}", experts=min(counts)
            )
        if (parallel.world_size // parallel.pp) % parallel.ep:
            return _("{name}: the {ranks} ranks of a pipeline stage do not divide by it").format(
                name=f"ep {parallel.ep}", ranks=parallel.world_size // parallel.pp
            )
        return None

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        """Experts over `ep`."""
        spread = ledger.map_groups(lambda group: _spread(group, parallel.ep), by=self.name)
        return replace(spread, all_trainable=ledger.num_trainable)

    def collectives(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[Collective, ...]:
        """Tokens out and back, forward, backward, and again where a layer is recomputed."""
        result = []
        for group in ledger.groups:
            copies = _copies_of_a_token(group)
            if copies <= 0 or tokens <= 0:
                continue
            passes = 1 + group.in_backward + group.recomputed
            spread = config.parallel.tp if config.parallel.sequence_parallel else 1
            result.append(
                Collective(
                    operation="all_to_all",
                    num_bytes=tokens * copies * ledger.arch.hidden_size * ledger.compute_bytes / spread,
                    ranks=config.parallel.ep,
                    count=2 * passes * group.repeats * config.gradient_accumulation_steps,
                    overlapped_frac=0.0,
                    stride=config.parallel.tp if config.parallel.ep * config.parallel.tp <= _stage(config) else 1,
                    in_micro_batch=True,
                )
            )
        return tuple(result)

    def buffer_bytes(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[float, float]:
        """Tokens as sent and as received, on the way out and on the way back."""
        copies = max((_copies_of_a_token(group) for group in ledger.groups), default=0.0)
        return 2.0 * tokens * copies * ledger.arch.hidden_size * ledger.compute_bytes, 0.0

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        refuse(f"ep {parallel.ep}")


def _stage(config: RunConfig) -> int:
    return config.parallel.world_size // config.parallel.pp


def _copies_of_a_token(group: ModuleGroup) -> float:
    """top_k: experts that a token passes through (unchanged by spreading: fewer experts, each with more tokens)."""
    if group.expert_ranks == 1:
        return 0.0
    return max(
        (lin.count * lin.active_frac for lin in group.linears if lin.count > 1 or lin.active_frac > 1), default=1
    )


def _spread(group: ModuleGroup, ranks: int) -> ModuleGroup:
    experts = expert_params(group)
    if not experts:
        return group
    here = ceil(experts / ranks)
    local = with_params(group, group.num_params - experts + here)
    linears = tuple(
        replace(lin, count=ceil(lin.count / ranks), active_frac=lin.active_frac * ranks)
        if lin.active_frac < 1.0
        else lin
        for lin in group.linears
    )
    return replace(local, linears=linears, expert_ranks=ranks, expert_params=here)
