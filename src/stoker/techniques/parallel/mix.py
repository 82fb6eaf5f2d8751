"""Several axes at once: each technique's pass, collectives and buffers, one after the other.

Order of the passes: what a rank holds of the model (tensor, expert, context), what data parallel shards of that, and
last which layers its stage has. So FSDP gathers a tensor-parallel rank's part, and a stage sums what is left to it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker.core.ledger import Ledger, ModelArch
from stoker.core.run_config import Parallel, RunConfig
from stoker.techniques.parallel.priced_only import refuse
from stoker.techniques.protocols import Collective, ParallelTechnique

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Mix:
    """`parts` in the order of their passes."""

    parts: tuple[ParallelTechnique, ...]

    @property
    def name(self) -> str:
        return "+".join(part.name for part in self.parts)

    @property
    def can_run(self) -> bool:
        """No mix is built yet."""
        return False

    def matches(self, parallel: Parallel) -> bool:
        """Whether exactly its parts are in use."""
        return all(part.matches(parallel) for part in self.parts)

    def problem(self, arch: ModelArch, parallel: Parallel) -> str | None:
        """The first part's problem."""
        return next((text for text in (part.problem(arch, parallel) for part in self.parts) if text), None)

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        for part in self.parts:
            ledger = part.apply(ledger, parallel)
        return ledger

    def collectives(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[Collective, ...]:
        return tuple(item for part in self.parts for item in part.collectives(ledger, config, tokens))

    def buffer_bytes(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[float, float]:
        """Sums: the buffers of one axis do not wait for those of another."""
        pairs = [part.buffer_bytes(ledger, config, tokens) for part in self.parts]
        return sum(own for own, _units in pairs), sum(units for _own, units in pairs)

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        refuse(parallel.label)
