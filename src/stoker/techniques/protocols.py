"""What each kind of technique must offer. `tests/contract` checks that what is declared is what is built.

Cost methods work on core types and never import torch; construction methods import it inside.
Passes run in this order: adapter, precision, attention, recompute, optimizer, parallel, placement.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from stoker.core.hardware import Device
from stoker.core.job import TuneSpec
from stoker.core.ledger import Ledger, ModelArch, ModuleGroup
from stoker.core.profile import LengthDistribution
from stoker.core.run_config import Parallel, RunConfig

if TYPE_CHECKING:
    import torch


class Optimizer(Protocol):
    """Prices its state a group at a time and builds itself over parameter groups."""

    @property
    def name(self) -> str: ...

    @property
    def step_temp_bytes_per_param(self) -> float:
        """Transient bytes per trainable parameter of one step, beyond gradients and state (case 4)."""

    @property
    def states_may_page(self) -> bool:
        """Whether state lies in managed memory that moves to the host when the GPU runs short."""

    @property
    def takes_shards(self) -> bool:
        """Whether it steps FSDP's shards of a parameter; else it needs whole tensors."""

    def step_temp_bytes(self, group: ModuleGroup) -> float:
        """Transient bytes of the largest tensor of `group`, where tensors are stepped one at a time."""

    def step_flops(self, group: ModuleGroup) -> float:
        """FLOP of the matrix products of one step over one copy of `group` (Muon), in bf16."""

    def state_bytes(self, group: ModuleGroup) -> int:
        """Optimizer state of one copy of `group`, unsharded (case 4: it exists only after step 1)."""

    def step_bytes_per_param(self, weight_bytes: float, master_bytes: float, grad_bytes: float) -> float:
        """Bytes read and written per trainable parameter by one step, for the time estimate."""

    def build(self, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """The optimizer over torch parameter groups (params, lr, weight_decay)."""


class Adapter(Protocol):
    """Decides which parameters learn."""

    @property
    def name(self) -> str: ...

    def apply(self, ledger: Ledger, tune: TuneSpec) -> Ledger: ...

    def attach(self, model: "torch.nn.Module", tune: TuneSpec) -> "torch.nn.Module":
        """The model with adapters, everything that does not learn frozen. Comes before Precision.convert."""


class Precision(Protocol):
    """A number format for weights, gradients, masters and compute."""

    @property
    def name(self) -> str: ...

    @property
    def compute_dtype(self) -> str: ...

    @property
    def needs_scaler(self) -> bool: ...

    @property
    def accumulates_fp32(self) -> bool:
        """Whether gradients of several micro-batches need a `GradientAccumulator` (4 bytes a parameter more)."""

    def apply(self, ledger: Ledger) -> Ledger: ...

    def unsupported(self, device: Device) -> str | None:
        """Why `device` cannot do it (by compute capability, never by a permissive query), or None."""

    def convert(self, model: "torch.nn.Module") -> None:
        """Weights to their dtype in place; trainable ones keep fp32 where the format says so (case 24)."""

    def autocast(self, device_type: str) -> AbstractContextManager[Any]: ...

    def wrap_optimizer(self, inner: Optimizer, groups: list[dict[str, Any]]) -> "torch.optim.Optimizer":
        """The optimizer, over fp32 masters where the format keeps them."""


class AttentionTechnique(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def hf_name(self) -> str:
        """Value of `attn_implementation` in transformers."""

    def apply(self, ledger: Ledger) -> Ledger:
        """Keeps or drops the score tensors."""

    def unsupported(self, device: Device) -> str | None: ...


class RecomputeTechnique(Protocol):
    @property
    def name(self) -> str: ...

    def apply(self, ledger: Ledger) -> Ledger: ...

    def attach(self, model: "torch.nn.Module") -> None: ...


class LossTechnique(Protocol):
    """The last layer's loss. Bytes are of the logits and every copy alive at the peak."""

    @property
    def name(self) -> str: ...

    @property
    def recomputes_head(self) -> bool:
        """Whether backward runs the vocabulary projection again (2 H V more FLOPs a token)."""

    @property
    def needs_package(self) -> str | None:
        """Python package of its kernel, None where torch is enough."""

    def logits_terms(self, tokens: float, num_outputs: int, compute_bytes: float) -> dict[str, float]:
        """Bytes of each tensor alive at the peak, by name."""

    def logits_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """The sum of `logits_terms`."""

    def held_bytes(self, tokens: float, num_outputs: int, compute_bytes: float) -> float:
        """What of it outlives the loss where the model's output object does (logits)."""

    def head_bytes(self, weight_elements: float, compute_bytes: float) -> float:
        """Transients of the size of a head that learns, beside its weight and the gradient that stays."""

    def language_model_loss(
        self, hidden: "torch.Tensor", head: "torch.nn.Module", labels: "torch.Tensor"
    ) -> "torch.Tensor":
        """Sum (not mean) of the cross-entropy over labels != -100, fp32.

        hidden [B, S, H]; labels [B, S], already shifted: labels[:, i] belongs to hidden[:, i].
        """


CollectiveName = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "broadcast", "ring_pass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One kind of collective of a step.

    `num_bytes`: the full tensor of one call (send, broadcast: what one GPU sends; all_to_all: what one rank hands
    out, its own part included). `count`: calls in one optimizer step. `overlapped_frac`: share that may hide under
    compute. `stride`: how far apart in rank order neighbours of the group are (tensor parallel: 1).
    `in_micro_batch`: on the way of every micro-batch, so that an idle pipeline stage waits for it too.
    """

    operation: CollectiveName
    num_bytes: float
    ranks: int
    count: int
    overlapped_frac: float
    stride: int = 1
    in_micro_batch: bool = False


class ParallelTechnique(Protocol):
    """One axis of parallelism. Several in use at once make a `Mix` (techniques/parallel/mix.py)."""

    @property
    def name(self) -> str: ...

    @property
    def can_run(self) -> bool:
        """Whether this version's engine builds it; else it is priced only."""

    def matches(self, parallel: Parallel) -> bool:
        """Whether these degrees use this axis."""

    def problem(self, arch: ModelArch, parallel: Parallel) -> str | None:
        """Why `arch` cannot be cut like this (heads, layers, experts), or None."""

    def apply(self, ledger: Ledger, parallel: Parallel) -> Ledger:
        """The ledger of one rank: what it holds of the model, and the shards of data parallel."""

    def collectives(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[Collective, ...]:
        """Those of a step. `tokens`: computed tokens of a rank's micro-batch, for what sends activations."""

    def buffer_bytes(self, ledger: Ledger, config: RunConfig, tokens: float = 0.0) -> tuple[float, float]:
        """(communication buffers, gathered units) alive at the peak, per rank."""

    def attach(self, model: "torch.nn.Module", parallel: Parallel) -> "torch.nn.Module":
        """The model over the default process group. Comes after Precision.convert and before the optimizer.

        Raises PlanningError ST382 where `can_run` is false.
        """


class PackingTechnique(Protocol):
    """How the samples of one optimizer step become micro-batches. Which samples those are, the data order says."""

    @property
    def name(self) -> str: ...

    def mean_tokens(self, lengths: LengthDistribution, micro_batch_size: int, global_batch_size: int) -> float:
        """Computed tokens of a mean micro-batch, padding included."""

    def peak_tokens(self, lengths: LengthDistribution, micro_batch_size: int) -> tuple[float, float]:
        """(tokens, sequence length) of the fullest micro-batch."""

    def micro_batches(self, lengths: Sequence[int], samples: Sequence[int], micro_batch_size: int) -> list[list[int]]:
        """Micro-batches of one optimizer step over all ranks: `samples` are its global batch in data order,
        `lengths[sample]` their tokens. Rank r of D takes micro-batches r, r + D, r + 2D, ..."""

    def padded_length(self, batch: Sequence[int], longest: int) -> int:
        """Tokens that every sample of a micro-batch with lengths `batch` is padded to; `longest`: of the data."""


class CaptureTechnique(Protocol):
    """How kernels are launched. `kernel_frac`: launches left per launch of the eager loop; `warm_up_s`: once a run."""

    @property
    def name(self) -> str: ...

    @property
    def kernel_frac(self) -> float: ...

    @property
    def warm_up_s(self) -> float: ...

    def attach(self, model: "torch.nn.Module") -> "torch.nn.Module": ...


class PlacementTechnique(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def can_run(self) -> bool:
        """Whether this version's engine executes it; else it is priced only."""

    def apply(self, ledger: Ledger) -> Ledger: ...
