"""Context parallel: the tokens of a sample over `cp` ranks; keys and values travel.

Ring: each rank passes its keys and values round, forward once, backward once more with their gradients; a transfer
hides under the attention of the chunk before it, so only one of the `cp` rounds is exposed. Ulysses (2309.14509): two
all-to-all in and out of attention turn tokens / cp with all heads into all tokens with heads / cp; they are exposed.
Weights are sharded over dp_shard x cp, as torchtitan and DeepSpeed do. Attention work is taken as balanced.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from stoker.core.i18n import _
from stoker.core.ledger import Ledger, ModelArch
from stoker.core.run_config import Parallel, RunConfig
from stoker.techniques.parallel.priced_only import refuse
from stoker.techniques.protocols import Collective

if TYPE_CHECKING:
    import torch


class ContextParallel:
    """Over `cp` ranks."""

    __slots__ = ()

    name: ClassVar[str] = "context"
    can_run: ClassVar[bool] = False

    def matches(self, parallel: Parallel) -> bool:
        return parallel.cp > 1

    def problem(self, arch: ModelArch, parallel: Parallel) -> str | None:
        """Attention is needed; Ulysses divides the heads that tensor parallel left."""
        shapes = [group.attention for group in arch.groups if group.attention is not None]
        if not shapes:
            return _("{name}: the model has no attention heads to divide").format(name=f"cp {parallel.cp}")
        if parallel.context == "ulysses" and any(s.num_heads % (parallel.cp * parallel.tp) for s in shapes):
            return _("{name}: {heads} attention heads do not divide by it").format(
                name=f"ulysses {parallel.cp * parallel.tp}", heads=shapes[0].num_heads
            )
        return None

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        """Tokens over `cp`."""
        return replace(ledger, token_shards=parallel.cp, passes=(*ledger.passes, self.name))

    def collectives(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[Collective, ...]:
        """Per layer with attention. `tokens` are those of this rank: a cp-th of the samples'."""
        if tokens <= 0:
            return ()
        width = tokens * ledger.arch.hidden_size * ledger.compute_bytes / _spread(config)
        result = []
        for group in ledger.groups:
            if group.attention is None:
                continue
            shape = group.attention
            keys = 2.0 * tokens * shape.num_kv_heads * shape.head_dim * ledger.compute_bytes
            again = group.recomputed and group.attention_again
            layers = group.repeats * config.gradient_accumulation_steps
            if config.parallel.context == "ring":
                passes = 1 + 2 * group.in_backward + again  # backward: keys and values, and their gradients
                result.append(_ring(config, keys, passes * layers))
            else:
                passes = 1 + group.in_backward + again
                result.append(_exchange(config, width, 2 * passes * layers))
                result.append(_exchange(config, keys, passes * layers))
        return tuple(result)

    def buffer_bytes(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[float, float]:
        """Keys and values under way, in and out, and their gradients; Ulysses: query and output too."""
        shapes = [group.attention for group in ledger.groups if group.attention is not None]
        keys = max((2.0 * shape.num_kv_heads * shape.head_dim for shape in shapes), default=0.0)
        more = 2.0 * ledger.arch.hidden_size if config.parallel.context == "ulysses" else keys
        return tokens * (keys + more) * 2.0 * ledger.compute_bytes, 0.0

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        refuse(f"cp {parallel.cp}")


def _spread(config: RunConfig) -> int:
    """Ranks of tensor parallel that share the heads."""
    return config.parallel.tp


def _ring(config: RunConfig, num_bytes: float, count: int) -> Collective:
    """`num_bytes`: keys and values of one rank, which `cp - 1` neighbours in turn receive."""
    ranks = config.parallel.cp
    return Collective(
        operation="ring_pass",
        num_bytes=num_bytes,
        ranks=ranks,
        count=count,
        overlapped_frac=(ranks - 1) / ranks,
        stride=config.parallel.tp,
        in_micro_batch=True,
    )


def _exchange(config: RunConfig, num_bytes: float, count: int) -> Collective:
    return Collective(
        operation="all_to_all",
        num_bytes=num_bytes,
        ranks=config.parallel.cp,
        count=count,
        overlapped_frac=0.0,
        stride=config.parallel.tp,
        in_micro_batch=True,
    )
