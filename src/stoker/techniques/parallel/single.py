"""One process on one device: nothing sharded, nothing sent."""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from stoker.core.ledger import Ledger, ModelArch
from stoker.core.run_config import Parallel, RunConfig
from stoker.techniques.protocols import Collective

if TYPE_CHECKING:
    import torch


class Single:
    """The option that is always shown beside the others."""

    __slots__ = ()

    name: ClassVar[str] = "single"
    can_run: ClassVar[bool] = True

    def matches(self, parallel: Parallel) -> bool:
        """World size 1."""
        return parallel.world_size == 1

    def problem(self, arch: ModelArch, parallel: Parallel) -> str | None:
        return None

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        return replace(ledger, passes=(*ledger.passes, self.name))

    def collectives(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[Collective, ...]:
        return ()

    def buffer_bytes(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[float, float]:
        return 0.0, 0.0

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        return model
