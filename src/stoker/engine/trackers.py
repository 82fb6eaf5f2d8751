"""Trackers beside the record: TensorBoard, MLflow, Weights & Biases, Trackio, each used where it is installed.

They get the numbers that the record gets. A tracker that fails later never stops a run: it is dropped with a notice.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.core.record import EvalLine, StepLine


class Tracker(Protocol):
    def log(self, values: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class _TensorBoard:
    def __init__(self, out_dir: Path, name: str) -> None:
        module = importlib.import_module("torch.utils.tensorboard")
        self._writer = module.SummaryWriter(log_dir=str(out_dir / "tensorboard"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        for key, value in values.items():
            self._writer.add_scalar(key, value, step)

    def close(self) -> None:
        self._writer.close()


class _MlFlow:
    def __init__(self, out_dir: Path, name: str) -> None:
        self._mlflow: Any = importlib.import_module("mlflow")
        self._mlflow.start_run(run_name=name)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


class _WandbLike:
    """wandb, and trackio which offers the same calls."""

    def __init__(self, module: str, out_dir: Path, name: str) -> None:
        self._module: Any = importlib.import_module(module)
        self._module.init(project="stoker", name=name)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._module.log(dict(values), step=step)

    def close(self) -> None:
        self._module.finish()


_KINDS: Mapping[str, Callable[[Path, str], Tracker]] = {
    "tensorboard": _TensorBoard,
    "mlflow": _MlFlow,
    "wandb": lambda out_dir, name: _WandbLike("wandb", out_dir, name),
    "trackio": lambda out_dir, name: _WandbLike("trackio", out_dir, name),
}


class Trackers:
    """All trackers of a job. Raises RunError ST430 at the start for one that is not installed."""

    def __init__(self, names: Sequence[str], out_dir: Path, notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._trackers: dict[str, Tracker] = {}
        for name in names:
            try:
                self._trackers[name] = _KINDS[name](out_dir, out_dir.name)
            except ImportError as error:
                raise RunError(
                    "ST430",
                    _("the tracker {name} is not installed").format(name=name),
                    place="track",
                    fix=_("pip install {name}, or remove it from track: record.jsonl holds everything").format(
                        name=name
                    ),
                ) from error

    def step(self, line: StepLine) -> None:
        values = {"train/loss": line.loss, "train/lr": line.lr, "train/grad_norm": line.grad_norm}
        values["train/samples_per_s"] = line.samples / max(1e-9, line.step_s)
        self._log(values, line.step)

    def evaluated(self, line: EvalLine) -> None:
        self._log({f"eval/{name}": value for name, value in line.metrics.items()}, line.step)

    def close(self) -> None:
        for name, tracker in list(self._trackers.items()):
            self._guarded(name, tracker.close)

    def _log(self, values: Mapping[str, float], step: int) -> None:
        for name, tracker in list(self._trackers.items()):
            self._guarded(name, lambda tracker=tracker: tracker.log(values, step))  # type: ignore[misc]

    def _guarded(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # a tracker's server may fail in any way
            self._trackers.pop(name, None)
            self._notice(_("the tracker {name} failed and is dropped: {error}").format(name=name, error=error))
