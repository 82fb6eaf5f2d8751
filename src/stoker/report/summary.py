"""A record with its plan as one row of a report: `RunSummary`, with what was compared and what is worth a note."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stoker.core.comparison import Elsewhere, RunSummary
from stoker.core.human import format_bytes, format_percent
from stoker.core.i18n import _
from stoker.core.plan import Candidate, Plan
from stoker.core.plan_io import plan_from_json
from stoker.core.record import RunRecord
from stoker.report.measured import Measured, best_eval, compare, measure, mfu_problem

_MUCH_UNUSED = 0.2  # share of the reserved peak that is worth advice (case 8); 0.11 is the median of public rows


def plan_of(record: RunRecord) -> Plan | None:
    """The plan that the header carries, or None where there is none or it cannot be read."""
    data = record.header.get("plan")
    if not isinstance(data, dict):
        return None
    try:
        return plan_from_json(data)
    except (ValueError, KeyError, TypeError):
        return None


def candidate_of(record: RunRecord, plan: Plan | None) -> Candidate | None:
    """The candidate that ran: the one whose rank the header names, else the pick, else the only one."""
    if plan is None:
        return None
    rank = record.header.get("candidate_rank", plan.pick)
    found = plan.candidate(rank) if isinstance(rank, int) else None
    return found or (plan.candidates[0] if len(plan.candidates) == 1 else plan.picked)


def summarise(record: RunRecord, *, elsewhere: Sequence[Elsewhere] = (), notes: Sequence[str] = ()) -> RunSummary:
    """The summary of one run, named after its folder."""
    plan = plan_of(record)
    candidate = candidate_of(record, plan)
    measured = measure(record)
    return RunSummary(
        name=run_name(record),
        record=record,
        comparisons=compare(record, measured, candidate),
        metrics=final_metrics(record),
        elsewhere=tuple(elsewhere),
        notes=(*_own_notes(record, plan, measured), *_mfu_note(measured, candidate), *notes),
        plan=plan,
        candidate=candidate,
    )


def run_name(record: RunRecord) -> str:
    """The run folder's name."""
    path = Path(record.path)
    return (path.parent.name if path.name == "record.jsonl" else path.stem) or str(path)


def final_metrics(record: RunRecord) -> dict[str, float]:
    """What the record's end says of the exported model (the test set's as `test_...`), else the best evaluation."""
    final = _numbers(_end(record, "metrics"))
    chosen = best_eval(record) or (record.evals[-1] if record.evals else None)
    return final or (dict(chosen.metrics) if chosen else {})


def label_metrics(record: RunRecord) -> dict[str, dict[str, float]]:
    """Label -> its numbers (f1, support, threshold) at the best evaluation, else the last."""
    chosen = best_eval(record) or (record.evals[-1] if record.evals else None)
    return {name: dict(values) for name, values in chosen.labels.items()} if chosen else {}


def peak_bytes(measured: Measured) -> int | None:
    """The peak to show as one number: reserved where the device tells it, else allocated."""
    reserved, allocated = measured.peak_reserved_bytes, measured.peak_allocated_bytes
    return reserved if reserved is not None else allocated


def _end(record: RunRecord, key: str) -> Any:
    return record.end.get(key) if record.end else None


def _numbers(values: Any) -> dict[str, float]:
    if not isinstance(values, dict):
        return {}
    return {str(k): float(v) for k, v in values.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}


def _mfu_note(measured: Measured, candidate: Candidate | None) -> list[str]:
    problem = mfu_problem(measured, candidate)
    return [_("no MFU: {problem}").format(problem=problem)] if problem else []


def _own_notes(record: RunRecord, plan: Plan | None, measured: Measured) -> list[str]:
    notes: list[str] = []
    if record.status == "running":
        notes.append(_("the record has no end: the run is still going, or was killed"))
    if not record.steps:
        notes.append(_("no step was recorded"))
    elif measured.peak_reserved_bytes is None and measured.peak_allocated_bytes is None:
        notes.append(_("this device has no memory sensor: memory was not measured"))
    if measured.unused_bytes > _MUCH_UNUSED * (measured.peak_reserved_bytes or 0):
        notes.append(
            _(
                "{size} ({share} of what was reserved) were never in use at once: lengths or the loss leave gaps; "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, a chunked loss or packing closes them"
            ).format(
                size=format_bytes(measured.unused_bytes),
                share=format_percent(measured.unused_bytes / (measured.peak_reserved_bytes or 1)),
            )
        )
    if plan is None:
        notes.append(_("the record carries no plan that this stoker can read: nothing to compare with"))
    return notes
