"""`run(plan, out_dir)`: train what a plan says, survive what may happen, and leave a model and a record.

The same call again resumes from the newest whole checkpoint, or says that the run has finished. One process holds a
run folder at a time. What went wrong ends the record with `failed` and is raised.
"""

import datetime
import importlib.metadata
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from stoker import __version__
from stoker.core.errors import RunError, StokerError
from stoker.core.i18n import _
from stoker.core.plan import Plan
from stoker.core.plan_io import plan_to_json, write_plan
from stoker.core.record import RunRecord
from stoker.core.record_io import read_record
from stoker.data.prepared import PreparedData
from stoker.engine import preflight
from stoker.engine.assemble import Parts, open_session, prepare_parts
from stoker.engine.checkpoint import RunLock, find_resume, open_checkpoint
from stoker.engine.evaluate import default_thresholds
from stoker.engine.export import export_model, model_notes
from stoker.engine.head_start import fit_head
from stoker.engine.identity import fingerprint
from stoker.engine.loop import Loop
from stoker.engine.memory import host_rss_bytes
from stoker.engine.progress import Progress
from stoker.engine.run_folder import finished_record
from stoker.engine.session import EvaluationStopped, Session
from stoker.engine.state import Progressed, load_model_tensors, restore
from stoker.engine.stopping import StopRequest
from stoker.observe.writer import RecordWriter

PLAN_NAME = "plan.json"


def run(plan: Plan, out_dir: Path, *, progress: Progress) -> RunRecord:
    """Train `plan`'s pick into `out_dir`; returns the record, whose status says how it ended.

    Raises RunError ST400 to ST459, DataError, ModelError; the record then ends with `failed`.
    """
    started_s = time.monotonic()
    preflight.check_writable(out_dir)
    with RunLock(out_dir) as lock:
        parts = prepare_parts(plan, progress)
        past = finished_record(out_dir, parts.facts, progress.notice)
        if past is not None:
            progress.notice(_("this run has finished already: nothing to do"))
            return past
        with RecordWriter(out_dir, clock=_counting_from(started_s)) as record, StopRequest() as stop:
            try:
                _train(plan, parts, out_dir, lock, record, stop, progress)
            except BaseException as error:
                _end_failed(record, error)
                raise
            finally:
                progress.close()
    return read_record(out_dir)


def _counting_from(start_s: float) -> Callable[[], float]:
    """A monotonic clock whose first reading is `start_s`: preparing data and model belongs to the run's time."""
    first = [start_s]
    return lambda: first.pop() if first else time.monotonic()


def _train(
    plan: Plan,
    parts: Parts,
    out_dir: Path,
    lock: RunLock,
    record: RecordWriter,
    stop: StopRequest,
    progress: Progress,
) -> None:
    record.header(record_header(plan, parts))
    if not (out_dir / PLAN_NAME).is_file():
        write_plan(plan, out_dir / PLAN_NAME)
    session = open_session(plan, parts, out_dir, lock, record, progress)
    progressed = _resume(session, parts.data)
    _before_first_step(session, progressed)
    progress.start(
        total_steps=session.total_steps,
        done_steps=progressed.step,
        unit="tokens" if plan.job.task == "causal_lm" else "samples",
    )
    status = Loop(session, progressed, stop).train()
    metrics: dict[str, float] = {}
    if status == "finished":
        try:
            metrics = _finish(session, progressed, stop)
        except EvaluationStopped:
            status = "interrupted"
    if status == "interrupted":
        progress.notice(
            _("stopped ({reason}) after step {step}: saved; the same command goes on from there").format(
                reason=stop.reason, step=progressed.step
            )
        )
        record.end("interrupted", _end_fields(session, progressed, {}) | {"reason": stop.reason})
    else:
        record.end("finished", _end_fields(session, progressed, metrics))
    session.trackers.close()


def _resume(session: Session, data: PreparedData) -> Progressed:
    scan = find_resume(session.out_dir)
    for rejected in scan.rejected:
        session.warn("ST427", _("{name} is not used: {reason}").format(name=rejected.path.name, reason=rejected.reason))
    if scan.newest is None:
        fit_head(session, data)
        return Progressed()
    progressed = restore(
        scan.newest,
        session.model,
        session.updater,
        trainable_only=session.trainable_only,
        facts=session.facts,
    )
    session.progress.notice(_("resuming after step {step}").format(step=progressed.step))
    return progressed


def _before_first_step(session: Session, progressed: Progressed) -> None:
    config = session.candidate.run_config
    preflight.check_space(session)
    session.progress.notice(
        _("effective batch {batch} = {micro} a forward x {steps} accumulated x {ranks} process").format(
            batch=config.global_batch_size,
            micro=config.micro_batch_size,
            steps=config.gradient_accumulation_steps,
            ranks=config.parallel.data_parallel,
        )
    )
    idle = preflight.idle_gpus_notice(session.device, config.parallel.world_size)
    if idle:
        session.warn("ST429", idle)
    reserved = preflight.probe_longest(session)
    if reserved is not None:
        session.record.event(
            "probe", _("the longest micro-batch fits"), data={"reserved_bytes": reserved, "step": progressed.step}
        )


def _finish(session: Session, progressed: Progressed, stop: StopRequest) -> dict[str, float]:
    """The best checkpoint's model scored on the test split and exported; its metrics. Raises EvaluationStopped."""
    job = session.job
    step, thresholds, metrics = _best_state(session, progressed)
    thresholds = thresholds or default_thresholds(job, len(session.labels))
    if session.test is not None:
        scored = session.score(session.test, _("testing"), thresholds=thresholds or None, stop=stop)
        metrics |= {f"test_{name}": value for name, value in scored.metrics.items()}
        session.record.event("test", _("scored on the test data"), data=scored.metrics)
    notes = model_notes(
        job,
        base_model=session.plan.model.name,
        labels=tuple(session.labels),
        thresholds=thresholds,
        pooling=session.built.pooling,
        max_length=session.max_length,
        form=session.form,
        adapter=session.trainable_only,
        step=step,
        metrics=metrics,
    )
    if session.tiers is not None:
        session.tiers.finish()
    export_model(
        session.out_dir,
        session.built,
        notes,
        tokenizer=session.tokenizer,
        form=session.form,
        merge=job.tune.merge,
    )
    return metrics


def _best_state(session: Session, progressed: Progressed) -> tuple[int, tuple[float, ...], dict[str, float]]:
    """(step, thresholds, metrics) of what is exported, its weights in the model: the best, or else the last."""
    last = progressed.step, progressed.thresholds, dict(progressed.metrics)
    best = progressed.best_step if session.job.save.best else None
    if best is None or best == progressed.step:
        return last
    try:
        tensors = open_checkpoint(session.out_dir, best).load("model")
    except RunError as error:  # training is done and cannot find it again: the last weights are the next best
        session.warn("ST432", _("the last weights are exported, not the best: {problem}").format(problem=error.problem))
        return last
    if session.tiers is not None:
        session.tiers.load_weights(tensors)
    else:
        load_model_tensors(session.model, tensors, trainable_only=session.trainable_only)
    return best, progressed.best_thresholds, dict(progressed.best_metrics)


def record_header(plan: Plan, parts: Parts) -> dict[str, Any]:
    """The first line of a record: plan, facts of the learning, versions, machine, sizes."""
    names = ("torch", "transformers", "safetensors", "peft", "tokenizers")
    device = parts.device
    return {
        "plan": plan_to_json(plan),
        "fingerprint": fingerprint(parts.facts),
        "facts": dict(parts.facts),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {
            "python": platform.python_version(),
            "stoker": __version__,  # the code that runs, also where it runs from a checkout
            **{name: _version(name) for name in names},
        },
        "hardware": {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
            "kind": device.type,
            "threads": torch.get_num_threads(),
            "system": platform.platform(),
        },
        "num_params": parts.built.num_params,
        "num_trainable_params": parts.built.num_trainable_params,
        "num_samples": len(parts.train),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _end_fields(session: Session, progressed: Progressed, metrics: dict[str, float]) -> dict[str, Any]:
    elapsed = session.record.elapsed_s
    return {
        "steps": progressed.step,
        "samples": progressed.samples,
        "tokens": progressed.tokens,
        "overflows": progressed.overflows,
        "metrics": metrics,
        "best_step": progressed.best_step,
        "samples_per_s": progressed.samples / elapsed if elapsed > 0 else None,
        "tokens_per_s": progressed.tokens / elapsed if elapsed > 0 else None,
        "peak_allocated_bytes": session.memory.peak_allocated_bytes,
        "peak_reserved_bytes": session.memory.peak_reserved_bytes,
        "phase_peak_bytes": dict(session.memory.phases),
        "host_rss_bytes": host_rss_bytes(),
        **({"tier_terms": session.tiers.terms()} if session.tiers is not None else {}),
    }


def _end_failed(record: RecordWriter, error: BaseException) -> None:
    """The record's last line of a run that broke; a second failure here must not hide the first."""
    code = error.code if isinstance(error, StokerError) else ""
    text = error.problem if isinstance(error, StokerError) else f"{type(error).__name__}: {error}"
    try:
        record.end("failed", {"code": code, "error": text})
    except RunError:
        return
