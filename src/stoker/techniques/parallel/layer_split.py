"""Naive split of layers over GPUs (Hugging Face's device_map): one process, of whose GPUs one works at a time.

It buys memory only: time is that of one GPU plus the hops of activations from card to card. The last GPU holds the
head and the logits, the first the embedding.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from stoker.core.i18n import _
from stoker.core.ledger import Ledger, ModelArch
from stoker.core.run_config import Parallel, RunConfig
from stoker.techniques.parallel.pipeline import split_stages
from stoker.techniques.parallel.priced_only import refuse
from stoker.techniques.protocols import Collective

if TYPE_CHECKING:
    import torch


class LayerSplit:
    """Over `pp` GPUs of one process."""

    __slots__ = ()

    name: ClassVar[str] = "layer_split"
    can_run: ClassVar[bool] = False

    def matches(self, parallel: Parallel) -> bool:
        return parallel.kind == "layer_split" and parallel.world_size > 1

    def problem(self, arch: ModelArch, parallel: Parallel) -> str | None:
        """Only layers can be dealt out."""
        if parallel.world_size != parallel.pp:
            return _("layer_split takes pp alone")
        if sum(group.repeats for group in arch.groups if group.kind == "block") < parallel.pp:
            return _("{name}: fewer layers than GPUs").format(name=f"layer_split {parallel.pp}")
        return None

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        """The whole model for time; the first and the last GPU for memory."""
        whole = ledger.num_trainable
        ends = tuple(replace(stage, all_trainable=whole) for stage in split_stages(ledger, parallel.pp))
        return replace(ledger, stages=ends, passes=(*ledger.passes, self.name))

    def collectives(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[Collective, ...]:
        """A block's output over every border, and its gradient back."""
        if tokens <= 0:
            return ()
        return (
            Collective(
                operation="send",
                num_bytes=tokens * ledger.arch.hidden_size * ledger.compute_bytes,
                ranks=2,
                count=2 * (config.parallel.pp - 1) * config.gradient_accumulation_steps,
                overlapped_frac=0.0,
            ),
        )

    def buffer_bytes(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[float, float]:
        return 0.0, 0.0

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        refuse("layer_split")
