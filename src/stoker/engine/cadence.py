"""When to log, evaluate and save: decided from step counts and a monotonic clock, never from the loss.

Steps are counted as updates made. Evaluation and saving also happen at the run's last step.
"""

import time
from collections.abc import Callable

from stoker.core.job import EvalSpec, SaveSpec
from stoker.core.job_checks import save_minutes
from stoker.core.save_interval import young_daly_interval_s

_LOG_LINES = 100  # about this many step lines a run
_MAX_LOG_STEPS = 50


def log_interval(total_steps: int) -> int:
    """Updates between two step lines: at most 50, and about 100 lines a run."""
    return min(_MAX_LOG_STEPS, max(1, total_steps // _LOG_LINES))


class Cadence:
    """Answers after each update whether an evaluation or a save is due."""

    def __init__(
        self,
        *,
        total_steps: int,
        steps_per_epoch: int,
        evaluation: EvalSpec,
        save: SaveSpec,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_steps = total_steps
        self.log_every = log_interval(total_steps)
        self._per_epoch = steps_per_epoch
        self._eval_every = evaluation.every
        self._save_every = save.every
        self._clock = clock
        self._last_save = clock()
        minutes = save_minutes(save.every) if isinstance(save.every, str) else None
        self._interval_s = minutes * 60.0 if minutes else young_daly_interval_s(0.0)

    def log_due(self, step: int) -> bool:
        return step % self.log_every == 0 or step in (1, self.total_steps)

    def eval_due(self, step: int) -> bool:
        return self._due(self._eval_every, step)

    def save_due(self, step: int) -> bool:
        if isinstance(self._save_every, int) or self._save_every == "epoch":
            return self._due(self._save_every, step)
        return step == self.total_steps or self._clock() - self._last_save >= self._interval_s

    def saved(self, save_s: float) -> None:
        """A save that took `save_s` is done; under `auto` the interval follows what saving costs."""
        self._last_save = self._clock()
        if self._save_every == "auto":
            self._interval_s = young_daly_interval_s(save_s)

    def _due(self, every: int | str, step: int) -> bool:
        period = every if isinstance(every, int) else self._per_epoch
        return step % period == 0 or step == self.total_steps
