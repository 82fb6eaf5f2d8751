"""Measurement: one measured figure of somebody's training run, typed, in the words of the table that printed it.

`value` is in `unit`; what the words mean (method, precision, strategy) `stoker.validation` works out. A field that the
table leaves open is None or "".
"""

from dataclasses import dataclass
from typing import Literal

Metric = Literal[
    "peak_mem_gb",
    "step_time_s",
    "tokens_per_s_per_gpu",
    "samples_per_s_per_gpu",
    "seconds_total",
    "oom",
    "ran",
    "mfu",
    "failed",
    "fit_max_seq_len",
]
Quality = Literal["measured", "vendor-reported", "user-report", "derived", "suspect"]
Role = Literal["", "calibration", "holdout", "excluded", "repeat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One row. `table`: repository or paper and the place in it. `gpu_gb`: sold size. `line`: of the file it stood in.

    `micro_batch_size`: samples of one forward on one GPU; `global_batch_size`: of one optimizer step over all GPUs.
    """

    source: str
    table: str
    model: str
    metric: str
    value: float
    unit: str
    num_params: int | None = None
    method: str = ""
    precision: str = ""
    optimizer: str = ""
    gpu: str = ""
    gpu_gb: float | None = None
    num_gpus: int | None = None
    strategy: str = ""
    micro_batch_size: int | None = None
    global_batch_size: int | None = None
    seq_len: int | None = None
    recompute: str = ""
    attention: str = ""
    quality: str = "measured"
    role: str = ""
    note: str = ""
    line: int = 0

    @property
    def run(self) -> tuple[object, ...]:
        """What two readings of one run share: everything but metric, value, unit, quality and note."""
        return (
            self.source,
            self.table,
            self.model,
            self.num_params,
            self.method,
            self.precision,
            self.optimizer,
            self.gpu,
            self.gpu_gb,
            self.num_gpus,
            self.strategy,
            self.micro_batch_size,
            self.global_batch_size,
            self.seq_len,
            self.recompute,
            self.attention,
        )
