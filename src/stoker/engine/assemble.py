"""From a plan to a `Session`: device, data, model, objective, optimizer, cadence, in the order a run meets them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.lr_schedule import schedule_of, steps_per_epoch, total_steps
from stoker.core.plan import Candidate, Plan
from stoker.data.images import ImageSplit
from stoker.data.prepare import prepare_data
from stoker.data.prepared import PreparedData, Split
from stoker.data.tokenizer import tokenizer_path
from stoker.engine import preflight
from stoker.engine.batches import Source, StepPlan
from stoker.engine.build import BuiltModel, build_model
from stoker.engine.cadence import Cadence
from stoker.engine.checkpoint import RunLock
from stoker.engine.identity import learning_facts
from stoker.engine.image_source import ImageForm, ImageSource, image_form
from stoker.engine.loss_scale import LossScale
from stoker.engine.memory import MemoryWatch
from stoker.engine.objective import (
    LanguageModelLoss,
    MultiLabel,
    NextToken,
    SingleLabel,
    balanced_class_weights,
    balanced_positive_weights,
)
from stoker.engine.param_groups import parameter_groups
from stoker.engine.progress import Progress
from stoker.engine.session import Session
from stoker.engine.text_source import TextSource
from stoker.engine.tiers.session import TieredUpdater, open_tiers
from stoker.engine.trackers import Trackers
from stoker.engine.update import Updater
from stoker.observe.writer import RecordWriter
from stoker.techniques.loss import loss
from stoker.techniques.optimizer import optimizer
from stoker.techniques.packages import require_packages
from stoker.techniques.packing import packing
from stoker.techniques.precision import precision
from stoker.techniques.precision.accumulate import GradientAccumulator
from stoker.techniques.runnable import require_runnable

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
    form: ImageForm | None
    facts: Mapping[str, Any]


def prepare_parts(plan: Plan, progress: Progress) -> Parts:
    """Data read and tokenised, model built and checked against them.

    Raises DataError, ModelError, RunError, and EnvironmentProblem where a package of the job's techniques is missing.
    """
    candidate = plan.picked or (plan.candidates[0] if plan.candidates else None)
    if candidate is None:
        raise RunError(
            "ST400",
            _("the plan has no candidate to run"),
            place=plan.job.source_path,
            fix=_("`stoker plan` says what would fit"),
        )
    job, config = plan.job, candidate.run_config
    require_runnable(config, plan.model)
    require_packages(job)
    device = preflight.choose_device(candidate.cluster.device, config, config.parallel.world_size)
    data = prepare_data(
        job,
        plan.model,
        progress=lambda split, done, total: progress.phase(_("preparing {split}").format(split=split), done, total),
    )
    for notice in data.notices:
        progress.notice(str(notice))
    labels = data.labels.names if data.labels is not None else ()
    built = build_model(job, plan.model, config, labels)
    objective = choose_objective(job, data, loss(config.loss).language_model_loss)
    form = image_form(job, plan.model) if job.task == "image_classification" else None
    sources = {
        name: _source(split, plan, candidate, objective, built, data, form, device)
        for name, split in data.splits.items()
    }
    return Parts(
        candidate=candidate,
        device=device,
        data=data,
        built=built,
        labels=labels,
        objective=objective,
        train=sources["train"],
        evaluation=sources.get("eval"),
        test=sources.get("test"),
        form=form,
        facts=learning_facts(job, config, data),
    )


def _source(
    split: Split,
    plan: Plan,
    candidate: Candidate,
    objective: SingleLabel | MultiLabel | NextToken,
    built: BuiltModel,
    data: PreparedData,
    form: ImageForm | None,
    device: torch.device,
) -> Source:
    if isinstance(split, ImageSplit):
        assert form is not None
        return ImageSource(split, plan.job, objective, form, workers=candidate.run_config.workers)
    assert data.tokenizer is not None
    return TextSource(
        split,
        plan.job,
        objective,
        packing(candidate.run_config.packing),
        pad_id=data.tokenizer.pad_id,
        multiple=_MATRIX_UNIT_MULTIPLE if device.type == "cuda" else 1,
        with_types=int(getattr(built.network.config, "type_vocab_size", 0) or 0) > 1,
    )


def choose_objective(job: Job, data: PreparedData, kernel: LanguageModelLoss) -> SingleLabel | MultiLabel | NextToken:
    """The loss of the job's task, with weights from the training label counts where it asks for balance."""
    if job.task == "causal_lm":
        return NextToken(kernel)
    balanced = job.train.class_weights == "balanced" and data.labels is not None
    counts = [data.profile.label_counts.get(name, 0) for name in data.labels.names] if balanced and data.labels else []
    if job.problem == "multi_label":
        return MultiLabel(balanced_positive_weights(counts, data.profile.num_samples) if balanced else None)
    return SingleLabel(balanced_class_weights(counts) if balanced else None)


def open_session(
    plan: Plan, parts: Parts, out_dir: Path, lock: RunLock, record: RecordWriter, progress: Progress
) -> Session:
    """The session with the model on its device (or in its tiers) and a fresh optimizer."""
    job, config, built = plan.job, parts.candidate.run_config, parts.built
    form = precision(config.precision)
    per_epoch = steps_per_epoch(len(parts.train), job.train.global_batch_size)
    total = total_steps(len(parts.train), job.train.global_batch_size, job.train.epochs, job.train.max_steps)
    factor = schedule_of(total, job.train.warmup_frac, job.train.schedule)
    steps = StepPlan(
        parts.train,
        packing(config.packing),
        seed=job.train.seed,
        global_batch_size=job.train.global_batch_size,
        micro_batch_size=config.micro_batch_size,
    )
    tiered = config.placement == "tiers"
    updater = _tiers(plan, parts, steps, factor, out_dir, progress) if tiered else _updater(plan, parts, factor)
    parameters = [p for p in built.model.parameters() if p.requires_grad]
    micro_batches = 1 if tiered else -(-job.train.global_batch_size // config.micro_batch_size)
    return Session(
        plan=plan,
        candidate=parts.candidate,
        out_dir=out_dir,
        device=parts.device,
        built=built,
        labels=parts.labels,
        objective=parts.objective,
        autocast=lambda: form.autocast(parts.device.type),
        updater=updater,
        accumulator=GradientAccumulator(parameters, micro_batches),
        steps=steps,
        steps_per_epoch=per_epoch,
        total_steps=total,
        cadence=Cadence(total_steps=total, steps_per_epoch=per_epoch, evaluation=job.eval, save=job.save),
        evaluation=parts.evaluation,
        test=parts.test,
        tokenizer=tokenizer_path(job, plan.model) if parts.data.tokenizer is not None else None,
        max_length=parts.data.seq_len,
        form=parts.form,
        facts=parts.facts,
        record=record,
        lock=lock,
        progress=progress,
        trackers=Trackers(job.track, out_dir, progress.notice),
        memory=MemoryWatch(parts.device),
    )


def _updater(plan: Plan, parts: Parts, factor: Callable[[int], float]) -> Updater:
    """Everything on the device: the optimizer over the model as it stands there."""
    job, model, form = plan.job, parts.built.model, precision(parts.candidate.run_config.precision)
    model.to(parts.device)
    groups = parameter_groups(model, job.train, parts.built.fresh)
    return Updater(
        form.wrap_optimizer(optimizer(job.train.optimizer), groups),
        [p for p in model.parameters() if p.requires_grad],
        factor=factor,
        max_grad_norm=job.train.max_grad_norm,
        scaler=LossScale() if form.needs_scaler else None,
    )


def _tiers(
    plan: Plan, parts: Parts, steps: StepPlan, factor: Callable[[int], float], out_dir: Path, progress: Progress
) -> TieredUpdater:
    """The tier engine, the model moved into its tiers from the CPU."""
    job, config = plan.job, parts.candidate.run_config
    form = precision(config.precision)
    fullest = steps.source.collate(steps.longest())
    return open_tiers(
        parts.built.model,
        job,
        config,
        parts.candidate.schedule,
        objective=parts.objective,
        groups=parameter_groups(parts.built.model, job.train, parts.built.fresh),
        factor=factor,
        device=parts.device,
        longest_tokens=fullest.padded_tokens,
        probe={name: tensor[:1] for name, tensor in fullest.inputs.items()},
        autocast=lambda: form.autocast(parts.device.type),
        scaler=LossScale() if form.needs_scaler else None,
        folder=out_dir,
        notice=progress.notice,
    )
