"""Everything that one run holds while it trains: job, device, model, data, optimizer, record, lock, watchers."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.plan import Candidate, Plan
from stoker.engine.batches import Source, StepPlan, evaluation_batches
from stoker.engine.build import BuiltModel
from stoker.engine.cadence import Cadence
from stoker.engine.checkpoint import RunLock
from stoker.engine.evaluate import Evaluation, Evaluator
from stoker.engine.image_source import ImageForm
from stoker.engine.memory import MemoryWatch
from stoker.engine.objective import MultiLabel, NextToken, SingleLabel
from stoker.engine.progress import Progress
from stoker.engine.stopping import StopRequest
from stoker.engine.tiers.session import TieredUpdater
from stoker.engine.trackers import Trackers
from stoker.engine.update import Updater
from stoker.observe.writer import RecordWriter
from stoker.techniques.precision.accumulate import GradientAccumulator


class EvaluationStopped(Exception):
    """A stop was asked for in the middle of an evaluation; it is made up for after the resume."""


@dataclass(slots=True, kw_only=True)
class Session:
    """See the module. `facts`: all that changes the learning. `evaluation`, `test`: splits to score, or None.

    Under placement tiers `updater` is the tier engine, which runs whole steps; `accumulator` is idle then.
    """

    plan: Plan
    candidate: Candidate
    out_dir: Path
    device: torch.device
    built: BuiltModel
    labels: Sequence[str]
    objective: SingleLabel | MultiLabel | NextToken
    autocast: Callable[[], Any]
    updater: Updater | TieredUpdater
    accumulator: GradientAccumulator
    steps: StepPlan
    steps_per_epoch: int
    total_steps: int
    cadence: Cadence
    evaluation: Source | None
    test: Source | None
    tokenizer: Path | None
    max_length: int | None
    form: ImageForm | None
    facts: Mapping[str, Any]
    record: RecordWriter
    lock: RunLock
    progress: Progress
    trackers: Trackers
    memory: MemoryWatch
    warnings: list[str] = field(default_factory=list)

    @property
    def job(self) -> Job:
        return self.plan.job

    @property
    def model(self) -> torch.nn.Module:
        return self.built.model

    @property
    def tiers(self) -> TieredUpdater | None:
        """The tier engine, where it runs this session."""
        return self.updater if isinstance(self.updater, TieredUpdater) else None

    def whole_model(self) -> AbstractContextManager[None]:
        """While open, the model can be called as one, wherever its weights live."""
        return self.tiers.whole() if self.tiers is not None else nullcontext()

    @property
    def trainable_only(self) -> bool:
        """Whether checkpoints hold adapters alone: the base is read from where it came from."""
        return self.job.tune.method != "full"

    @property
    def usd_per_hour(self) -> float | None:
        """Price of the machine this runs on, where one is known."""
        return self.candidate.cost.usd_per_hour if self.candidate.cost else None

    @property
    def lr_text(self) -> str:
        return f"{self.job.train.lr:g}"

    def warn(self, code: str, text: str) -> None:
        """A notice to the watcher, and an event in the record."""
        self.warnings.append(text)
        self.progress.notice(f"[{code}] {text}")
        self.record.event("warning", text, code=code)

    def evaluate(self, stop: StopRequest | None = None) -> Evaluation:
        """Score the validation split; thresholds are tuned there. Raises EvaluationStopped when asked to stop."""
        assert self.evaluation is not None
        return self.score(self.evaluation, _("evaluating"), thresholds=None, stop=stop)

    def score(
        self, source: Source, name: str, *, thresholds: Sequence[float] | None, stop: StopRequest | None = None
    ) -> Evaluation:
        """Metrics of one split; `thresholds` None: tuned on it."""
        size = self.candidate.run_config.micro_batch_size
        total = -(-len(source) // size)

        def phase(done: int) -> None:
            if stop is not None and stop.requested:
                raise EvaluationStopped
            self.progress.phase(name, done, total)

        evaluator = Evaluator(
            model=self.model,
            objective=self.objective,
            labels=self.labels,
            device=self.device,
            context=self.autocast,
        )
        with self.whole_model():
            return evaluator(evaluation_batches(source, size), thresholds=thresholds, phase=phase)

    def baseline_advice(self) -> str:
        """What to do when the model has learned to say always the same."""
        if self.job.task == "text_classification" and self.built.pooling is None:
            return _(
                "the metric stands where always-the-same would be: the head has learned nothing yet. "
                "Try tune.pooling: mean, a higher train.head_lr, or more epochs"
            )
        return _(
            "the metric stands where always-the-same would be: the head has learned nothing yet. "
            "Try a higher train.head_lr (or train.lr), more epochs, or class_weights: balanced"
        )
