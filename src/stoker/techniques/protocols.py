"""What each kind of technique must offer. `tests/contract` checks that what is declared is what is built.

Cost methods work on core types and never import torch; construction methods import it inside.
Passes run in this order: adapter, precision, attention, recompute, optimizer, parallel.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from stoker.core.hardware import Device
from stoker.core.job import TuneSpec
from stoker.core.ledger import Ledger, ModuleGroup
from stoker.core.run_config import Parallel, RunConfig

if TYPE_CHECKING:
    import torch


class Optimizer(Protocol):
    """Prices its state a group at a time and builds itself over parameter groups."""

    name: str

    def state_bytes(self, group: ModuleGroup) -> int:
        """Optimizer state of one copy of `group`, unsharded (case 4: it exists only after step 1)."""

    def step_bytes_per_param(self, weight_bytes: float, master_bytes: float, grad_bytes: float) -> float:
        """Bytes read and written per trainable parameter by one step, for the time estimate."""

    def build(self, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """The optimizer over torch parameter groups (params, lr, weight_decay)."""


class Adapter(Protocol):
    """Decides which parameters learn."""

    name: str

    def apply(self, ledger: Ledger, tune: TuneSpec) -> Ledger: ...

    def attach(self, model: "torch.nn.Module", tune: TuneSpec) -> "torch.nn.Module":
        """The model with adapters, everything that does not learn frozen."""


class Precision(Protocol):
    """A number format for weights, gradients, masters and compute."""

    name: str
    compute_dtype: str

    def apply(self, ledger: Ledger) -> Ledger: ...

    def unsupported(self, device: Device) -> str | None:
        """Why `device` cannot do it (by compute capability, never by a permissive query), or None."""

    def convert(self, model: "torch.nn.Module") -> None:
        """Weights to their dtype; trainable ones keep fp32 where the format says so (case 24)."""

    def autocast(self, device_type: str) -> AbstractContextManager[Any]: ...

    def wrap_optimizer(self, inner: Optimizer, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """The optimizer, over fp32 masters where the format keeps them."""

    @property
    def needs_scaler(self) -> bool: ...


class AttentionTechnique(Protocol):
    name: str

    def apply(self, ledger: Ledger) -> Ledger:
        """Keeps or drops the score tensors."""

    def unsupported(self, device: Device) -> str | None: ...

    @property
    def hf_name(self) -> str:
        """Value of `attn_implementation` in transformers."""


class RecomputeTechnique(Protocol):
    name: str

    def apply(self, ledger: Ledger) -> Ledger: ...

    def attach(self, model: "torch.nn.Module") -> None: ...


class LossTechnique(Protocol):
    """The last layer's loss. Bytes are of the logits and every copy alive at the peak."""

    name: str

    def logits_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float: ...

    def language_model_loss(
        self, hidden: "torch.Tensor", head: "torch.nn.Module", labels: "torch.Tensor"
    ) -> "torch.Tensor":
        """Sum (not mean) of the cross-entropy over labels != -100, fp32. hidden [B, S, H], labels [B, S]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective of a step: bytes of the full tensor, ranks, how often, which share hides under compute."""

    operation: str  # all_reduce | all_gather | reduce_scatter
    num_bytes: float
    ranks: int
    count: int
    overlapped_frac: float


class ParallelTechnique(Protocol):
    name: str

    def matches(self, parallel: Parallel) -> bool: ...

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        """Shards in the ledger."""

    def collectives(self, ledger: Ledger, config: RunConfig) -> tuple[Collective, ...]: ...

    def buffer_bytes(self, ledger: Ledger, config: RunConfig) -> tuple[float, float]:
        """(communication buffers, gathered units) alive at the peak, per rank."""

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module": ...


class PackingTechnique(Protocol):
    """How samples become micro-batches."""

    name: str

    def mean_tokens(self, lengths: Any, micro_batch_size: int) -> float:
        """Computed tokens of a mean micro-batch, padding included; `lengths`: a LengthDistribution."""

    def peak_tokens(self, lengths: Any, micro_batch_size: int) -> tuple[float, float]:
        """(tokens, sequence length) of the fullest micro-batch."""

    def micro_batches(self, lengths: Iterable[int], order: Iterable[int], micro_batch_size: int) -> Iterator[list[int]]:
        """Sample positions of each micro-batch of one optimizer step, from `order`."""
