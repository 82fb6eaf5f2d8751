"""The training loop: steps, and between steps logging, evaluation, saving and stopping.

Nothing in a step waits for the device on CUDA; losses and norms stay there until a step line is due. A loss or
gradient that is not finite stops the run before a weight changes.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.core.record import EvalLine, SaveLine, StepLine
from stoker.engine.batches import Ahead
from stoker.engine.checkpoint import prune, save_checkpoint
from stoker.engine.evaluate import Evaluation, is_better
from stoker.engine.identity import fingerprint
from stoker.engine.microbatch import StepBatch
from stoker.engine.ordering import keyed_seed
from stoker.engine.session import EvaluationStopped, Session
from stoker.engine.state import Progressed, capture
from stoker.engine.stopping import StopRequest
from stoker.engine.tiers.session import TieredUpdater
from stoker.engine.update import Updater


@dataclass(slots=True)
class _Window:
    """Sums since the last step line; `loss` and `norm` on the device."""

    loss: torch.Tensor
    norm: torch.Tensor
    steps: int = 0
    samples: int = 0
    tokens: int = 0
    padded: int = 0
    wait_s: float = 0.0
    start_s: float = field(default_factory=time.perf_counter)


class Loop:
    """Trains a `Session` from where `progressed` stands. `train` returns how it ended: finished or interrupted."""

    def __init__(self, session: Session, progressed: Progressed, stop: StopRequest) -> None:
        self.session, self.progressed, self.stop = session, progressed, stop
        self._window = self._fresh_window()
        self._stopped_early = False
        self._evaluation_owed = False
        self._saved_step: int | None = progressed.step or None
        self._warned: set[str] = set()

    def train(self) -> str:
        """Run to the last step, an early stop, or a request to stop (then a checkpoint is written)."""
        session, progressed = self.session, self.progressed
        session.model.train()
        self._stopped_early = self._out_of_patience()
        self._evaluate_if_due()  # an interruption may have come between a save and its evaluation
        with Ahead(self._batches(progressed.step)) as ahead:
            batches = iter(ahead)
            self._window = self._fresh_window()
            while progressed.step < session.total_steps and not self._stopped_early and not self.stop.requested:
                waited = time.perf_counter()
                batch = next(batches)
                self._window.wait_s += time.perf_counter() - waited
                self.train_step(batch)
                self._between_steps()
        done = (progressed.step >= session.total_steps or self._stopped_early) and not self._evaluation_owed
        if self._saved_step != progressed.step:
            self._flush_window()
            self._save()
        return "finished" if done else "interrupted"

    def _batches(self, first: int) -> Iterator[StepBatch]:
        session = self.session
        pinned = session.device.type == "cuda"
        for step in range(first, session.total_steps):
            batch = session.steps.batch(step)
            if pinned:
                batch = StepBatch(
                    step=batch.step,
                    epoch=batch.epoch,
                    micro_batches=tuple(micro.pin() for micro in batch.micro_batches),
                )
            yield batch

    def train_step(self, batch: StepBatch) -> None:
        """One optimizer update; an fp16 overflow repeats the step at a lower scale, with the same draws."""
        session, updater, window = self.session, self.session.updater, self._window
        while True:
            if isinstance(updater, TieredUpdater):
                loss, outcome = updater.train(batch, session.device)
            else:
                loss = self._accumulate(batch)
            if batch.step == 0:
                self._name_parameters_without_gradient()
            if isinstance(updater, Updater):
                outcome = updater.step(loss)
            if outcome.finite is False:
                raise not_finite(batch.step + 1, float(loss), session.lr_text)
            if outcome.applied:
                break
            self.progressed.overflows += 1
            session.record.event(
                "overflow",
                _("step {step}: the gradient overflowed fp16, loss scale now {scale:g}").format(
                    step=batch.step + 1, scale=updater.scaler.scale if updater.scaler else 0
                ),
                code="ST421",
            )
        window.loss += loss
        window.norm.copy_(outcome.norm)
        window.steps += 1
        window.samples += batch.samples
        window.tokens += batch.tokens
        window.padded += batch.padded_tokens
        self.progressed.step = batch.step + 1
        self.progressed.samples += batch.samples
        self.progressed.tokens += batch.tokens

    def _accumulate(self, batch: StepBatch) -> torch.Tensor:
        """Forward and backward of every micro-batch; the step's mean loss, on the device."""
        session = self.session
        weight = max(batch.weight, 1e-30)
        assert isinstance(session.updater, Updater)
        factor = session.updater.loss_factor(weight)
        total = torch.zeros((), device=session.device)
        for index, micro in enumerate(batch.micro_batches):
            torch.manual_seed(keyed_seed(session.job.train.seed, batch.step, index, "forward"))
            with session.autocast():
                loss = session.objective.loss_sum(session.model, micro.to(session.device))
            torch.autograd.backward(loss * factor)
            session.accumulator.add()
            total += loss.detach()
        session.accumulator.finish()
        return total / weight

    def _between_steps(self) -> None:
        step, cadence = self.progressed.step, self.session.cadence
        if cadence.log_due(step):
            self._flush_window()
        if cadence.eval_due(step) or cadence.save_due(step) or step == self.session.total_steps:
            self._flush_window()
            better = self._evaluate_if_due()
            if better or cadence.save_due(step):
                self._save()
            self._window = self._fresh_window()

    def _fresh_window(self) -> _Window:
        device = self.session.device
        return _Window(torch.zeros((), device=device), torch.zeros((), device=device))

    def _flush_window(self) -> None:
        """A step line of what was summed since the last one; here the host learns of numbers that are not finite."""
        window, session = self._window, self.session
        if window.steps == 0:
            return
        loss, norm = torch.stack((window.loss / window.steps, window.norm)).tolist()
        bad = session.updater.first_bad_step()
        if bad is not None:
            raise not_finite(bad, loss, session.lr_text)
        allocated, reserved = session.memory.read("train")
        now = time.perf_counter()
        elapsed = session.record.elapsed_s
        line = StepLine(
            step=self.progressed.step,
            epoch=self.progressed.step / session.steps_per_epoch,
            loss=loss,
            lr=session.updater.last_lr,
            grad_norm=norm,
            samples=window.samples,
            tokens=window.tokens,
            padded_tokens=window.padded,
            elapsed_s=elapsed,
            step_s=(now - window.start_s) / window.steps,
            data_wait_s=window.wait_s / window.steps,
            allocated_bytes=allocated,
            reserved_bytes=reserved,
            cost_usd=None if session.usd_per_hour is None else elapsed / 3600.0 * session.usd_per_hour,
        )
        session.record.append(line)
        session.trackers.step(line)
        session.progress.step(line, total_steps=session.total_steps)
        self._window = self._fresh_window()

    def _evaluate_if_due(self) -> bool:
        """Evaluate when it is due and not done yet; True when the result is the best so far."""
        session, progressed = self.session, self.progressed
        if session.evaluation is None or progressed.step == 0 or progressed.evaluated_step == progressed.step:
            return False
        if not session.cadence.eval_due(progressed.step):
            return False
        try:
            evaluation = session.evaluate(self.stop)
        except EvaluationStopped:
            self._evaluation_owed = True  # the resumed run evaluates first
            return False
        session.memory.read("evaluation")
        value = evaluation.metrics[session.job.metric]
        better = is_better(session.job.metric, value, progressed.best_metric)
        progressed.evaluated_step = progressed.step
        progressed.thresholds = evaluation.thresholds
        progressed.metrics = dict(evaluation.metrics)
        progressed.stale = 0 if better else progressed.stale + 1
        if better:
            progressed.best_metric, progressed.best_step = value, progressed.step
            progressed.best_thresholds, progressed.best_metrics = evaluation.thresholds, dict(evaluation.metrics)
        self._tell_evaluation(evaluation, better)
        self._stopped_early = self._out_of_patience()
        if self._stopped_early:
            text = _("{count} evaluations without a better {metric}: stopped").format(
                count=progressed.stale, metric=session.job.metric
            )
            session.record.event("early_stop", text)
            session.progress.notice(text)
        return better and session.job.save.best

    def _out_of_patience(self) -> bool:
        patience = self.session.job.train.early_stop
        unfinished = self.progressed.step < self.session.total_steps
        return patience is not None and self.progressed.stale >= patience and unfinished

    def _tell_evaluation(self, evaluation: Evaluation, better: bool) -> None:
        session = self.session
        line = EvalLine(
            step=self.progressed.step,
            epoch=self.progressed.step / session.steps_per_epoch,
            metrics=evaluation.metrics,
            elapsed_s=session.record.elapsed_s,
            eval_s=evaluation.eval_s,
            is_best=better,
            labels=evaluation.labels,
        )
        session.record.append(line)
        session.trackers.evaluated(line)
        session.progress.evaluated(line)
        if evaluation.absent:
            names = ", ".join(evaluation.absent)
            self._warn(
                "ST424",
                _("no validation row has the label {names}: left out of the macro average").format(names=names),
            )
        if evaluation.at_baseline:
            self._warn("ST423", session.baseline_advice())

    def _warn(self, code: str, text: str) -> None:
        """A warning, once a run."""
        if code not in self._warned:
            self._warned.add(code)
            self.session.warn(code, text)

    def _save(self) -> None:
        session, progressed = self.session, self.progressed
        files, meta = capture(
            session.model,
            session.updater,
            progressed,
            trainable_only=session.trainable_only,
            facts=session.facts,
        )
        saved = save_checkpoint(
            session.out_dir,
            progressed.step,
            files,
            meta,
            run_id=fingerprint(session.facts),
            before_commit=session.lock.check,
        )
        session.memory.read("save")
        self._saved_step = progressed.step
        session.cadence.saved(saved.save_s)
        best = progressed.best_step if session.job.save.best else None
        pruned = prune(session.out_dir, session.job.save.keep, best)
        if pruned.problem:
            session.warn("ST425", pruned.problem)
        line = SaveLine(
            step=saved.step,
            path=str(saved.path.relative_to(session.out_dir)),
            save_s=saved.save_s,
            num_bytes=saved.num_bytes,
            elapsed_s=session.record.elapsed_s,
        )
        session.record.append(line)
        session.record.sync()
        session.progress.saved(line)

    def _name_parameters_without_gradient(self) -> None:
        """Case 21: after the first backward, before the optimizer touches anything."""
        named = self.session.model.named_parameters()
        tiers = self.session.tiers
        silent = tiers.silent() if tiers else [name for name, p in named if p.requires_grad and p.grad is None]
        if silent:
            shown = ", ".join(silent[:5]) + (", ..." if len(silent) > 5 else "")
            self.session.warn(
                "ST426",
                _("{count} parameters got no gradient: {names}").format(count=len(silent), names=shown),
            )


def not_finite(step: int, loss: float, lr_text: str) -> RunError:
    """The error for a loss or gradient that is NaN or infinite at `step` (from 1)."""
    return RunError(
        "ST420",
        _("the loss or its gradient is not finite (loss {loss}); no weight was changed by this step").format(loss=loss),
        place=_("step {step}").format(step=step),
        fix=_(
            "lower train.lr ({lr}) or lengthen train.warmup_frac; under fp16 use bf16_amp or fp32; "
            "the last checkpoint is kept"
        ).format(lr=lr_text),
    )
