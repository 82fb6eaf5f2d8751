"""Anchors: measured training speeds of the literature, to fit the efficiency table on and to judge predictions by.

Each row of data/efficiency_anchors.csv is one published or own measurement with its source and date; `config` is the
model's shape as a Hugging Face config, `value` is in `quantity` (step_s; samples_ or tokens_per_s_per_gpu).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stoker.catalogue.tables import read_rows
from stoker.core.job import Method, Task
from stoker.core.run_config import AttentionKernel, LossKernel, Parallel, Precision, Recompute, RunConfig

Quantity = Literal["step_s", "samples_per_s_per_gpu", "tokens_per_s_per_gpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One measured step. Every sample has `seq_len` tokens."""

    name: str
    config: Mapping[str, Any]
    task: Task
    method: Method
    gpu: str
    num_gpus: int
    run_config: RunConfig
    seq_len: int
    quantity: Quantity
    value: float
    source: str
    reference: str
    observed_at: str
    note: str = ""

    @property
    def label(self) -> str:
        """Name, GPU and shape."""
        return f"{self.name} on {self.num_gpus} x {self.gpu}, {self.run_config.label}, {self.seq_len} tokens"

    @property
    def step_s(self) -> float:
        """Measured seconds of one optimizer step."""
        if self.quantity == "step_s":
            return self.value
        samples = self.run_config.micro_batch_size * self.run_config.gradient_accumulation_steps
        return samples * (self.seq_len if self.quantity == "tokens_per_s_per_gpu" else 1) / self.value


def all_anchors() -> tuple[Anchor, ...]:
    """Every row of the table."""
    return tuple(_anchor(row) for row in read_rows("efficiency_anchors.csv"))


def _anchor(row: dict[str, Any]) -> Anchor:
    num_gpus = int(row["num_gpus"])
    micro, rounds = int(row["micro_batch_size"]), int(row["gradient_accumulation_steps"])
    precision: Precision = row["precision"]
    recompute: Recompute = row["recompute"]
    loss: LossKernel = row["loss"]
    attention: AttentionKernel = row["attention"]
    parallels = {
        "single": Parallel(),
        "ddp": Parallel(dp_replicate=num_gpus),
        "fsdp": Parallel(dp_shard=num_gpus),
    }
    return Anchor(
        name=row["name"],
        config=json.loads(row["config"]),
        task=row["task"],
        method=row["method"],
        gpu=row["gpu"],
        num_gpus=num_gpus,
        run_config=RunConfig(
            micro_batch_size=micro,
            gradient_accumulation_steps=rounds,
            global_batch_size=micro * rounds * num_gpus,
            parallel=parallels[row["parallel"]],
            precision=precision,
            recompute=recompute,
            loss=loss,
            attention=attention,
            packing="none",
        ),
        seq_len=int(row["seq_len"]),
        quantity=row["quantity"],
        value=float(row["value"]),
        source=row["source"],
        reference=row["reference"],
        observed_at=row["observed_at"],
        note=row["note"],
    )
