"""What a run must remember: numbers of its progress, and the tensors of model and optimizer, for a checkpoint and back.

No random state is stored: order and draws are pure functions of seed and step. The job's fingerprint and facts
(`identity`) say whether a checkpoint belongs to it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch

from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.engine.checkpoint import AnyTensor, ResumePoint, flatten_state, unflatten_state
from stoker.engine.identity import fingerprint, other_job
from stoker.engine.loss_scale import LossScale
from stoker.engine.tiers.session import TieredUpdater
from stoker.engine.update import Updater

TensorFiles = dict[str, dict[str, AnyTensor]]


@dataclass(slots=True, kw_only=True)
class Progressed:
    """Numbers that go on after a resume. `step`: updates made; `stale`: evaluations since the best."""

    step: int = 0
    samples: int = 0
    tokens: int = 0
    best_metric: float | None = None
    best_step: int | None = None
    best_thresholds: tuple[float, ...] = ()
    best_metrics: dict[str, float] = field(default_factory=dict)
    thresholds: tuple[float, ...] = ()
    stale: int = 0
    evaluated_step: int | None = None
    overflows: int = 0
    metrics: dict[str, float] = field(default_factory=dict)


def model_tensors(model: torch.nn.Module, *, trainable_only: bool) -> dict[str, torch.Tensor]:
    """Tensors of the model by name, tied ones once; with `trainable_only` what learns, and the buffers."""
    frozen = {name for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
    seen: set[tuple[int, tuple[int, ...]]] = set()
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in model.state_dict().items():
        place = (tensor.data_ptr(), tuple(tensor.shape))
        if (trainable_only and _belongs_to(name, frozen)) or (tensor.numel() and place in seen):
            continue
        seen.add(place)
        tensors[name] = tensor
    return tensors


def _belongs_to(name: str, parameters: set[str]) -> bool:
    """Whether `name` is one of `parameters` or what a 4-bit one keeps beside it (`...weight.absmax`)."""
    parts = name.split(".")
    return any(".".join(parts[:end]) in parameters for end in range(len(parts), 0, -1))


def load_model_tensors(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor], *, trainable_only: bool) -> None:
    """Put `tensors` back, in place. Raises RunError ST404 where names or shapes are another model's."""
    wanted = model_tensors(model, trainable_only=trainable_only)
    wrong = set(wanted) ^ set(tensors)
    wrong |= {name for name in wanted.keys() & tensors.keys() if wanted[name].shape != tensors[name].shape}
    if wrong:
        raise RunError(
            "ST404",
            _("the checkpoint is of another model: {name}").format(name=min(wrong)),
            place="checkpoints",
            fix=_("choose another --out, or run the job that this folder belongs to"),
        )
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(tensors[name])


def capture(
    model: torch.nn.Module,
    updater: Updater | TieredUpdater,
    progressed: Progressed,
    *,
    trainable_only: bool,
    facts: Mapping[str, Any],
) -> tuple[TensorFiles, dict[str, Any]]:
    """(tensor files, meta) of the run as it stands after an update."""
    meta: dict[str, Any] = {
        "fingerprint": fingerprint(facts),
        "facts": dict(facts),
        "progress": asdict(progressed),
        "scaler": updater.scaler.state() if updater.scaler else None,
    }
    if isinstance(updater, TieredUpdater):
        held, meta["tiers"] = updater.capture(trainable_only=trainable_only)
        return held, meta
    tensors, meta["optimizer"] = flatten_state(updater.optimizer.state_dict())
    files: TensorFiles = {"model": dict(model_tensors(model, trainable_only=trainable_only))}
    if tensors:
        files["optimizer"] = dict(tensors)
    return files, meta


def restore(
    point: ResumePoint,
    model: torch.nn.Module,
    updater: Updater | TieredUpdater,
    *,
    trainable_only: bool,
    facts: Mapping[str, Any],
) -> Progressed:
    """Put the state of `point` into model and updater. Raises RunError ST403 for another job's checkpoint, ST468 for
    one that only the other placement's engine can read."""
    if point.meta.get("fingerprint") != fingerprint(facts):
        raise other_job(str(point.path), point.meta.get("facts"), facts)
    if ("tiers" in point.meta) != isinstance(updater, TieredUpdater):
        raise _other_engine(point)
    if isinstance(updater, TieredUpdater):
        updater.restore({name: point.map(name) for name in point.files}, point.meta["tiers"])
        return _progress_of(point)
    load_model_tensors(model, point.load("model"), trainable_only=trainable_only)
    tensors = point.load("optimizer") if "optimizer" in point.files else {}
    updater.optimizer.load_state_dict(unflatten_state(tensors, point.meta["optimizer"]))
    if updater.scaler is not None and point.meta["scaler"] is not None:
        updater.scaler = LossScale.from_state(point.meta["scaler"])
    progressed = _progress_of(point)
    updater.updates = progressed.step
    return progressed


def _progress_of(point: ResumePoint) -> Progressed:
    saved = point.meta["progress"]
    progressed = Progressed(**{f.name: saved[f.name] for f in fields(Progressed) if f.name in saved})
    progressed.thresholds = tuple(progressed.thresholds)
    progressed.best_thresholds = tuple(progressed.best_thresholds)
    return progressed


def _other_engine(point: ResumePoint) -> RunError:
    return RunError(
        "ST468",
        _("this checkpoint was written under the other placement (run.placement)"),
        place=str(point.path),
        fix=_("pin run.placement to what the run began with (hbm or tiers)"),
    )
