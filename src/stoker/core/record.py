"""A run's record: one JSON object a line; header first, then step, eval, save and event lines, end last.

The record is what `report`, `diagnose` and `calibrate` read; nothing else of a run is needed for them.
Times are seconds from the run's first start on a monotonic clock; memory is bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

RECORD_SCHEMA_VERSION = 1
RunStatus = Literal["finished", "interrupted", "failed", "running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A logged optimizer step (or the last of several): loss is the mean since the previous line."""

    step: int
    epoch: float
    loss: float
    lr: float
    grad_norm: float
    samples: int
    tokens: int
    padded_tokens: int
    elapsed_s: float
    step_s: float
    data_wait_s: float
    allocated_bytes: int | None
    reserved_bytes: int | None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalLine:
    """Metrics of one evaluation; `labels`: for classification, each label's f1, support and (multi_label) threshold."""

    step: int
    epoch: float
    metrics: Mapping[str, float]
    elapsed_s: float
    eval_s: float
    is_best: bool
    labels: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveLine:
    """A completed checkpoint."""

    step: int
    path: str
    save_s: float
    num_bytes: int
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """Anything else worth telling, with a stable code where there is one."""

    name: str
    message: str
    elapsed_s: float
    code: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A record read back. `header` and `end` are plain mappings (their keys: docs/architecture.md)."""

    path: str
    header: Mapping[str, Any]
    steps: tuple[StepLine, ...]
    evals: tuple[EvalLine, ...]
    saves: tuple[SaveLine, ...]
    events: tuple[EventLine, ...]
    end: Mapping[str, Any] | None

    @property
    def status(self) -> RunStatus:
        if self.end is None:
            return "running"
        status: RunStatus = self.end["status"]
        return status
