"""From a plan to a `Session`: device, data, model, objective, optimizer, cadence, in the order a run meets them."""

from dataclasses import dataclass
from pathlib import Path

import torch

from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.lr_schedule import schedule_of, steps_per_epoch, total_steps
from stoker.core.plan import Candidate, Plan
from stoker.data.encoded import EncodedSplit
from stoker.data.prepare import PreparedData, prepare_data
from stoker.data.tokenizer import load_tokenizer, tokenizer_path
from stoker.engine import preflight
from stoker.engine.batches import Source, StepPlan
from stoker.engine.build import BuiltModel, build_model
from stoker.engine.cadence import Cadence
from stoker.engine.checkpoint import RunLock
from stoker.engine.loss_scale import LossScale
from stoker.engine.memory import MemoryWatch
from stoker.engine.objective import (
    MultiLabel,
    NextToken,
    SingleLabel,
    balanced_class_weights,
    balanced_positive_weights,
)
from stoker.engine.param_groups import parameter_groups
from stoker.engine.progress import Progress
from stoker.engine.session import Session
from stoker.engine.state import fingerprint
from stoker.engine.text_source import TextSource
from stoker.engine.trackers import Trackers
from stoker.engine.update import Updater
from stoker.observe.writer import RecordWriter
from stoker.techniques.loss import loss
from stoker.techniques.optimizer import optimizer
from stoker.techniques.packing import packing
from stoker.techniques.precision import precision
from stoker.techniques.precision.accumulate import GradientAccumulator

_MATRIX_UNIT_MULTIPLE = 8  # padded lengths on CUDA


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a run is made of before its record opens: all checks of data and model are behind it."""

    candidate: Candidate
    device: torch.device
    data: PreparedData
    built: BuiltModel
    labels: tuple[str, ...]
    objective: SingleLabel | MultiLabel | NextToken
    train: Source
    evaluation: Source | None
    test: Source | None
    tokenizer: Path | None
    max_length: int | None
    identity: str


def prepare_parts(plan: Plan, progress: Progress) -> Parts:
    """Data read and tokenised, model built and checked against them. Raises DataError, ModelError, RunError."""
    candidate = plan.picked or (plan.candidates[0] if plan.candidates else None)
    if candidate is None:
        raise RunError(
            "ST400",
            _("the plan has no candidate to run"),
            place=plan.job.source_path,
            fix=_("`stoker plan` says what would fit"),
        )
    job, config = plan.job, candidate.run_config
    device = preflight.choose_device(candidate.cluster.device, config, config.parallel.world_size)
    data = prepare_data(job, plan.model)
    for notice in data.notices:
        progress.notice(str(notice))
    labels = tuple(data.labels.names) if data.labels is not None else ()
    built = build_model(job, plan.model, config, labels)
    objective = choose_objective(job, data, loss(config.loss).language_model_loss)
    tokenizer = tokenizer_path(job, plan.model) if job.task != "image_classification" else None
    sources = [_source(split, plan, candidate, objective, built, tokenizer, device) for split in _splits(data)]
    train, evaluation, test = sources
    assert train is not None
    max_length = max((max(s.lengths, default=0) for s in sources if s is not None), default=None)
    if tokenizer is not None:
        preflight.check_lengths(built.network.config, max_length or 0)
        preflight.check_vocabulary(built.network, load_tokenizer(tokenizer).size)
    return Parts(
        candidate=candidate,
        device=device,
        data=data,
        built=built,
        labels=labels,
        objective=objective,
        train=train,
        evaluation=evaluation,
        test=test,
        tokenizer=tokenizer,
        max_length=max_length if tokenizer is not None else None,
        identity=fingerprint(job, config, len(train)),
    )


def _splits(data: PreparedData) -> tuple[object, object, object]:
    return data.train, data.eval, data.test


def _source(
    split: object,
    plan: Plan,
    candidate: Candidate,
    objective: SingleLabel | MultiLabel | NextToken,
    built: BuiltModel,
    tokenizer: Path | None,
    device: torch.device,
) -> Source | None:
    if split is None:
        return None
    if not isinstance(split, EncodedSplit):
        from stoker.engine.image_source import ImageSource

        return ImageSource(split, plan.job, objective, workers=candidate.run_config.workers)  # type: ignore[arg-type]
    assert tokenizer is not None
    return TextSource(
        split,
        plan.job,
        objective,
        packing(candidate.run_config.packing),
        pad_id=load_tokenizer(tokenizer).pad_id,
        multiple=_MATRIX_UNIT_MULTIPLE if device.type == "cuda" else 1,
        with_types=int(getattr(built.network.config, "type_vocab_size", 0) or 0) > 1,
    )


def choose_objective(job: Job, data: PreparedData, kernel: object) -> SingleLabel | MultiLabel | NextToken:
    """The loss of the job's task, with weights from the training label counts where it asks for balance."""
    if job.task == "causal_lm":
        return NextToken(kernel)  # type: ignore[arg-type]
    balanced = job.train.class_weights == "balanced" and data.labels is not None
    counts = [data.profile.label_counts.get(name, 0) for name in data.labels.names] if balanced and data.labels else []
    if job.problem == "multi_label":
        return MultiLabel(balanced_positive_weights(counts, data.profile.num_samples) if balanced else None)
    return SingleLabel(balanced_class_weights(counts) if balanced else None)


def open_session(
    plan: Plan, parts: Parts, out_dir: Path, lock: RunLock, record: RecordWriter, progress: Progress
) -> Session:
    """The session with the model on its device and a fresh optimizer."""
    job, config, built = plan.job, parts.candidate.run_config, parts.built
    built.model.to(parts.device)
    form = precision(config.precision)
    groups = parameter_groups(built.model, job.train, built.fresh)
    torch_optimizer = form.wrap_optimizer(optimizer(job.train.optimizer), groups)
    per_epoch = steps_per_epoch(len(parts.train), job.train.global_batch_size)
    total = total_steps(len(parts.train), job.train.global_batch_size, job.train.epochs, job.train.max_steps)
    parameters = [p for p in built.model.parameters() if p.requires_grad]
    micro_batches = -(-job.train.global_batch_size // config.micro_batch_size)
    return Session(
        plan=plan,
        candidate=parts.candidate,
        out_dir=out_dir,
        device=parts.device,
        built=built,
        labels=parts.labels,
        objective=parts.objective,
        autocast=lambda: form.autocast(parts.device.type),
        updater=Updater(
            torch_optimizer,
            parameters,
            factor=schedule_of(total, job.train.warmup_frac, job.train.schedule),
            max_grad_norm=job.train.max_grad_norm,
            scaler=LossScale() if form.needs_scaler else None,
        ),
        accumulator=GradientAccumulator(parameters, micro_batches),
        steps=StepPlan(
            parts.train,
            packing(config.packing),
            seed=job.train.seed,
            global_batch_size=job.train.global_batch_size,
            micro_batch_size=config.micro_batch_size,
        ),
        steps_per_epoch=per_epoch,
        total_steps=total,
        cadence=Cadence(total_steps=total, steps_per_epoch=per_epoch, evaluation=job.eval, save=job.save),
        evaluation=parts.evaluation,
        test=parts.test,
        tokenizer=parts.tokenizer,
        max_length=parts.max_length,
        identity=parts.identity,
        record=record,
        lock=lock,
        progress=progress,
        trackers=Trackers(job.track, out_dir, progress.notice),
        memory=MemoryWatch(parts.device),
    )
