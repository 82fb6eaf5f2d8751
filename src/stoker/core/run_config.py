"""How a job is run: parallel degrees, batch, precision, techniques, placement. Never what it learns."""

from dataclasses import dataclass, field
from typing import Literal

Precision = Literal["bf16", "bf16_amp", "bf16_pure", "fp16_amp", "fp32"]
Recompute = Literal["none", "selective", "full"]
LossKernel = Literal["eager", "chunked"]
AttentionKernel = Literal["eager", "sdpa", "flash"]
Packing = Literal["none", "bucketed", "packed"]
Capture = Literal["none", "compile"]
Placement = Literal["hbm", "tiers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Degrees as in torchtitan. DDP is dp_replicate, FSDP is dp_shard, HSDP is both."""

    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1

    @property
    def data_parallel(self) -> int:
        return self.dp_replicate * self.dp_shard

    @property
    def world_size(self) -> int:
        return self.data_parallel * self.cp * self.tp * self.pp

    @property
    def label(self) -> str:
        """`single`, `ddp`, `fsdp` or `hsdp`, with any further degree named."""
        kind = {(False, False): "single", (True, False): "ddp", (False, True): "fsdp", (True, True): "hsdp"}
        name = kind[self.dp_replicate > 1, self.dp_shard > 1]
        extra = [f"{axis}{n}" for axis, n in (("cp", self.cp), ("tp", self.tp), ("pp", self.pp)) if n > 1]
        return "+".join([name, *extra])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything that `run` may choose without changing the learning curve.

    global_batch_size = micro_batch_size x data_parallel x gradient_accumulation_steps; only an epoch's last step
    may hold fewer samples.
    """

    micro_batch_size: int
    gradient_accumulation_steps: int
    global_batch_size: int
    parallel: Parallel = field(default_factory=Parallel)
    precision: Precision = "fp32"
    recompute: Recompute = "none"
    placement: Placement = "hbm"
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
            parts.append("recompute" if self.recompute == "full" else "recompute:selective")
        if self.loss != "eager":
            parts.append(self.loss)
        return " ".join(parts)
