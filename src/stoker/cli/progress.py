"""A run as people watch it: a bar on a terminal, plain lines elsewhere. Everything goes to stderr."""

import sys
import time
from collections.abc import Callable
from typing import Any

from stoker.cli.console import notice, talk
from stoker.core.human import format_bytes, format_duration, format_money, format_rate
from stoker.core.i18n import _
from stoker.core.record import EvalLine, SaveLine, StepLine

_LINE_SECONDS = 5.0  # at most one plain line in this time
_SHOWN_METRICS = ("f1_macro", "f1_micro", "accuracy", "perplexity", "loss")


def run_progress(currency: str = "USD", usd_krw: float | None = None) -> "PlainProgress":
    """The progress that suits stderr."""
    kind = BarProgress if sys.stderr.isatty() else PlainProgress
    return kind(lambda usd: format_money(usd, currency, usd_krw))


class PlainProgress:
    """One line every few seconds: step, loss, learning rate, throughput, ETA, money."""

    def __init__(self, money: Callable[[float], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._money, self._clock = money, clock
        self._shown_s = float("-inf")
        self._unit = "samples"
        self._step_s: float | None = None
        self._done = 0
        self._rate: float | None = None

    def notice(self, text: str) -> None:
        notice(text)

    def start(self, *, total_steps: int, done_steps: int, unit: str) -> None:
        self._unit, self._done = unit, done_steps
        self.notice(_("training: {left} of {total} steps").format(left=total_steps - done_steps, total=total_steps))

    def step(self, line: StepLine, *, total_steps: int) -> None:
        now = self._clock()
        self._measure(line)
        if now - self._shown_s >= _LINE_SECONDS or line.step == total_steps:
            self._shown_s = now
            self.notice(
                _("step {step}/{total}  {numbers}").format(
                    step=line.step, total=total_steps, numbers=self._numbers(line, total_steps)
                )
            )

    def phase(self, name: str, done: int, total: int) -> None:
        now = self._clock()
        if done < total and now - self._shown_s >= _LINE_SECONDS:
            self._shown_s = now
            self.notice(f"{name} {done}/{total}")

    def evaluated(self, line: EvalLine) -> None:
        self.notice(_evaluation_text(line))

    def saved(self, line: SaveLine) -> None:
        self.notice(_saved_text(line))

    def close(self) -> None: ...

    def _measure(self, line: StepLine) -> None:
        """Running means of the step time and of the throughput, the newest line a fifth."""
        seconds = line.step_s * max(1, line.step - self._done)
        self._done = line.step
        amount = line.tokens if self._unit == "tokens" else line.samples
        rate = amount / seconds if seconds > 0 else None
        self._step_s = line.step_s if self._step_s is None else 0.8 * self._step_s + 0.2 * line.step_s
        self._rate = rate if self._rate is None or rate is None else 0.8 * self._rate + 0.2 * rate

    def _numbers(self, line: StepLine, total_steps: int) -> str:
        """Loss, learning rate, throughput, time left, money so far."""
        parts = [
            _("loss {loss:.4f}").format(loss=line.loss),
            f"lr {line.lr:.2e}",
            format_rate(self._rate, _("tokens") if self._unit == "tokens" else _("samples")),
            _("ETA {time}").format(time=format_duration((total_steps - line.step) * (self._step_s or 0.0))),
        ]
        if line.cost_usd is not None:
            parts.append(_("so far {money}").format(money=self._money(line.cost_usd)))
        return "  ".join(parts)


class BarProgress(PlainProgress):
    """The same numbers on one line that moves."""

    def __init__(self, money: Callable[[float], str], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(money, clock)
        self._bar: Any = None
        self._task: Any = None

    def notice(self, text: str) -> None:
        if self._bar is None:
            notice(text)
        else:
            self._bar.console.print(text, markup=False, highlight=False)

    def start(self, *, total_steps: int, done_steps: int, unit: str) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._unit, self._done = unit, done_steps
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=talk(),
        )
        self._task = self._bar.add_task(_("training"), total=total_steps, completed=done_steps, numbers="")
        self._bar.start()

    def step(self, line: StepLine, *, total_steps: int) -> None:
        self._measure(line)
        self._bar.update(
            self._task, completed=line.step, description=_("training"), numbers=self._numbers(line, total_steps)
        )

    def phase(self, name: str, done: int, total: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=f"{name} {done}/{total}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _evaluation_text(line: EvalLine) -> str:
    shown = [f"{name} {line.metrics[name]:.4f}" for name in _SHOWN_METRICS if name in line.metrics]
    best = "  " + _("(best so far)") if line.is_best else ""
    return _("evaluation after step {step}: {metrics}").format(step=line.step, metrics="  ".join(shown)) + best


def _saved_text(line: SaveLine) -> str:
    return _("saved {path} ({size}, {time})").format(
        path=line.path, size=format_bytes(line.num_bytes), time=format_duration(line.save_s)
    )
