"""`bench(plan)`: a few real optimizer steps of a plan's pick, measured; nothing stays but the record that is returned.

Steps of the user's own data and model, by the loop that trains: first one to warm up, then (from the second step on,
when the optimizer's state is there: case 4) the fullest micro-batch that the data can give, for memory, then steps of
mean length, for time. The folder that a session needs is a temporary one.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from stoker.core.i18n import _
from stoker.core.plan import Plan
from stoker.core.record import RunRecord, StepLine
from stoker.engine.assemble import Parts, open_session, prepare_parts
from stoker.engine.batches import StepPlan
from stoker.engine.checkpoint import RunLock
from stoker.engine.loop import Loop
from stoker.engine.memory import host_rss_bytes
from stoker.engine.microbatch import StepBatch
from stoker.engine.progress import Progress
from stoker.engine.run import record_header
from stoker.engine.session import Session
from stoker.engine.state import Progressed
from stoker.engine.stopping import StopRequest
from stoker.observe.writer import RecordWriter

WARM_UP = 2  # the second is the fullest batch
_LOOKED_AT = 64  # steps among which those of mean length are chosen


def bench(plan: Plan, *, steps: int, progress: Progress) -> RunRecord:
    """The record of `WARM_UP` + `steps` steps; its first lines are the warm-up. No checkpoint, no model, no evaluation.

    Weights that are not on this machine start random: neither time nor memory hangs on their values. Raises what a run
    raises: RunError, DataError, ModelError.
    """
    started_s = time.monotonic()
    if plan.model.folder is None:
        plan = replace(plan, model=replace(plan.model, random_weights=True))
    plan = replace(plan, job=replace(plan.job, track=[]))
    parts = prepare_parts(plan, progress)
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        out_dir = Path(folder)
        with RunLock(out_dir) as lock, RecordWriter(out_dir) as writer, StopRequest() as stop:
            session = open_session(plan, parts, out_dir, lock, writer, progress)
            session.model.train()
            loop = Loop(session, Progressed(), stop)
            ready_s = time.monotonic() - started_s
            lines = _measure(session, loop, stop, steps, ready_s)
        return _record(plan, parts, session, lines)


def _measure(session: Session, loop: Loop, stop: StopRequest, steps: int, ready_s: float) -> tuple[StepLine, ...]:
    """One line a step, the device waited for at each end, so that a step's time is its own."""
    total = WARM_UP + steps
    lines: list[StepLine] = []
    elapsed = ready_s
    for number, batch in enumerate(_batches(session.steps, session.total_steps, total), 1):
        if stop.requested:
            break
        _wait(session.device)
        begun = time.perf_counter()
        loop.train_step(batch)
        _wait(session.device)
        seconds = time.perf_counter() - begun
        elapsed += seconds
        allocated, reserved = session.memory.read("train")
        lines.append(_line(number, batch, seconds, elapsed, allocated, reserved))
        session.progress.phase(_("measuring"), number, total)
    return tuple(lines)


def _batches(plan: StepPlan, total_steps: int, count: int) -> Iterator[StepBatch]:
    """A mean step, the fullest one, then mean ones."""
    means = mean_steps(plan, total_steps, max(count - 1, 1))
    yield _numbered(plan.batch(means[0]), 1)
    yield _numbered(fullest_step(plan), 2)
    for position, step in enumerate(means[1 : count - 1]):
        yield _numbered(plan.batch(step), 3 + position)


def mean_steps(plan: StepPlan, total_steps: int, count: int) -> list[int]:
    """`count` steps of the run whose computed tokens are nearest to the mean, nearest first; repeated where too few."""
    looked = range(min(total_steps, max(_LOOKED_AT, count)))
    tokens = {step: _computed_tokens(plan, step) for step in looked}
    mean = sum(tokens.values()) / len(tokens)
    order = sorted(looked, key=lambda step: (abs(tokens[step] - mean), step))
    return [order[index % len(order)] for index in range(count)]


def _computed_tokens(plan: StepPlan, step: int) -> int:
    lengths = plan.source.lengths
    return sum(len(group) * max(lengths[i] for i in group) for group in plan.samples(step)[1])


def fullest_step(plan: StepPlan) -> StepBatch:
    """A whole optimizer step of the fullest micro-batch, as often as a step has micro-batches (at most twice)."""
    fullest = plan.source.collate(plan.longest())
    rounds = -(-plan.global_batch_size // plan.micro_batch_size)
    return StepBatch(step=0, epoch=0, micro_batches=(fullest,) * min(rounds, 2))


def _numbered(batch: StepBatch, number: int) -> StepBatch:
    return replace(batch, step=number)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _line(
    number: int, batch: StepBatch, seconds: float, elapsed: float, allocated: int | None, reserved: int | None
) -> StepLine:
    return StepLine(
        step=number,
        epoch=0.0,
        loss=0.0,
        lr=0.0,
        grad_norm=0.0,
        samples=batch.samples,
        tokens=batch.tokens,
        padded_tokens=batch.padded_tokens,
        elapsed_s=elapsed,
        step_s=seconds,
        data_wait_s=0.0,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
    )


def _record(plan: Plan, parts: Parts, session: Session, lines: Sequence[StepLine]) -> RunRecord:
    return RunRecord(
        path="bench",
        header={**record_header(plan, parts), "kind": "bench"},
        steps=tuple(lines),
        evals=(),
        saves=(),
        events=(),
        end={
            "status": "finished" if len(lines) > WARM_UP else "interrupted",
            "elapsed_s": lines[-1].elapsed_s if lines else 0.0,
            "steps": len(lines),
            "peak_allocated_bytes": session.memory.peak_allocated_bytes,
            "peak_reserved_bytes": session.memory.peak_reserved_bytes,
            "host_rss_bytes": host_rss_bytes(),
        },
    )
