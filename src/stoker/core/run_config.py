"""How a job is run: parallel degrees, batch, precision, techniques, placement. Never what it learns."""

import re
from dataclasses import dataclass, field
from typing import Literal

Precision = Literal["bf16", "bf16_amp", "bf16_pure", "fp16_amp", "fp32", "fp8"]
Recompute = Literal["none", "selective", "full", "offloaded"]
LossKernel = Literal["eager", "chunked", "liger", "cce", "upcast", "shifted", "narrow", "trl_chunked"]
AttentionKernel = Literal["eager", "sdpa", "flash"]
Packing = Literal["none", "bucketed", "packed"]
Capture = Literal["none", "compile"]
Placement = Literal["hbm", "tiers"]
ZeroStage = Literal[1, 2, 3]
ParallelKind = Literal["auto", "data_parallel", "layer_split"]
ContextExchange = Literal["ring", "ulysses"]
UpdateLane = Literal["auto", "gpu", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Degrees as in torchtitan. DDP is dp_replicate, FSDP is dp_shard, HSDP is both.

    `zero_stage`: what dp_shard shards: 1 the optimizer's state and masters (Megatron's distributed optimizer), 2 also
    gradients, 3 also weights (FSDP). `ep` is carved out of the ranks of dp, cp and tp, so it adds none.
    `virtual_stages`: chunks of layers a pipeline stage holds (1: plain 1F1B, more: interleaved).
    `sequence_parallel`: tensor parallel also shards what lies between its matrices. `context`: how cp exchanges keys.
    `gathers_narrow`: FSDP casts fp32 shards to the compute format before it gathers them (its mixed-precision policy).
    `async_tp`: tensor parallel sends in pieces under its matrix products.
    `kind`: `data_parallel` is torch.nn.DataParallel over dp_replicate GPUs of one process, `layer_split` the naive
    split of layers over `pp` GPUs (device_map), of which one works at a time; `auto` is everything else.
    """

    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    zero_stage: ZeroStage = 3
    virtual_stages: int = 1
    sequence_parallel: bool = True
    context: ContextExchange = "ring"
    gathers_narrow: bool = False
    async_tp: bool = False
    kind: ParallelKind = "auto"

    @property
    def data_parallel(self) -> int:
        """Ranks that see different samples."""
        return self.dp_replicate * self.dp_shard

    @property
    def shard_ranks(self) -> int:
        """Ranks over which `zero_stage` shards: those of dp_shard and of cp, which see different tokens."""
        return self.dp_shard * self.cp

    @property
    def world_size(self) -> int:
        """GPUs."""
        return self.data_parallel * self.cp * self.tp * self.pp

    @property
    def label(self) -> str:
        """`single`, `ddp`, `zero1`, `zero2`, `fsdp`, `hsdp`, with any further degree named: `fsdp+tp8`."""
        if self.kind != "auto":
            return self.kind
        sharded = {1: "zero1", 2: "zero2", 3: "fsdp"}[self.zero_stage]
        both = "hsdp" if self.zero_stage == 3 else f"{sharded}+ddp"
        name = {(True, False): "ddp", (False, True): sharded, (True, True): both}.get(
            (self.dp_replicate > 1, self.shard_ranks > 1), ""
        )
        context = "cp" if self.context == "ring" else "ulysses"
        axes = ((context, self.cp), ("tp", self.tp), ("pp", self.pp), ("vp", self.virtual_stages), ("ep", self.ep))
        parts = [name, *(f"{axis}{degree}" for axis, degree in axes if degree > 1)]
        return "+".join(part for part in parts if part) or "single"

    @property
    def form(self) -> str:
        """`label` without its degrees: which code shards, not over how many GPUs."""
        return re.sub(r"(cp|ulysses|tp|pp|vp|ep)\d+", r"\1", self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierShares:
    """What leaves GPU memory under `placement: tiers`, as shares (0: stays, 1: all of it).

    `state`: moments and masters. `weights`, `gradients`: of the 16-bit copies. `activations`: of what is kept at
    recompute boundaries. `nvme`: share of the state off the GPU that lies on flash instead of in DRAM;
    `nvme_weights` likewise for weights. `update`: where the optimizer runs; auto: by the bandwidths.
    `prefetch`: units fetched ahead. `layer_major`: all micro-batches pass a unit before the next one.
    `exact_pinned`: slabs of the exact size; else torch's pinned allocator, which rounds up to powers of two.
    `lossless_state`: 10 bytes a parameter (moments and the low halves of masters) instead of 12 to 16.
    """

    state: float = 1.0
    weights: float = 0.0
    gradients: float = 0.0
    activations: float = 0.0
    nvme: float = 0.0
    nvme_weights: float = 0.0
    update: UpdateLane = "auto"
    prefetch: int = 2
    layer_major: bool = False
    exact_pinned: bool = False
    lossless_state: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything that `run` may choose without changing the learning curve.

    global_batch_size = micro_batch_size x data_parallel x gradient_accumulation_steps; only an epoch's last step
    may hold fewer samples. `tiers`: with placement tiers only; None there means the defaults.
    """

    micro_batch_size: int
    gradient_accumulation_steps: int
    global_batch_size: int
    parallel: Parallel = field(default_factory=Parallel)
    precision: Precision = "fp32"
    recompute: Recompute = "none"
    placement: Placement = "hbm"
    tiers: TierShares | None = None
    loss: LossKernel = "eager"
    attention: AttentionKernel = "sdpa"
    packing: Packing = "bucketed"
    capture: Capture = "none"
    workers: int = 0

    @property
    def label(self) -> str:
        """One line for tables: `fsdp bf16 mb4x2 recompute`."""
        parts = [
            self.parallel.label,
            self.precision,
            f"mb{self.micro_batch_size}x{self.gradient_accumulation_steps}",
        ]
        if self.recompute != "none":
            parts.append("recompute" if self.recompute == "full" else f"recompute:{self.recompute}")
        if self.loss != "eager":
            parts.append(self.loss)
        if self.placement != "hbm":
            parts.append(self.placement)
        return " ".join(parts)

    @property
    def variant(self) -> str:
        """The variant of a program that decides which bytes lie where: sharding, recomputation, kernels, placement."""
        kernels = (self.loss, self.attention, self.capture, self.placement)
        return " ".join((self.parallel.form, self.precision, self.recompute, *kernels))
