"""calibrate: what own runs measured beside what their plans predicted, as corrections for the next plan.

A correction is a factor on step time and one on memory for one stack (device, model and its size, precision, method,
kernels, library versions), from the uncorrected prediction: a plan that was itself corrected is divided by its own
factors. On a GPU it also holds factors on the parts of memory, which other models of the stack take.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from statistics import median
from typing import Any

from stoker.catalogue.gpus import device_from_driver_name
from stoker.core.efficiency import Correction, CorrectionKey, Efficiency
from stoker.core.plan import Candidate, Plan
from stoker.core.plan_io import plan_from_json
from stoker.core.record import RunRecord, StepLine
from stoker.estimators.residual import FIXED, Reading, correct, uncorrected

_FEWEST_STEPS = 3  # two are warm-up: kernels are chosen in the first, optimizer state appears after it (case 4)
_LARGEST_FACTOR = 20.0  # beyond, the run measured something else (a debugger, another job on the device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run's reading: factors of measured over uncorrected prediction; None where it told nothing."""

    key: CorrectionKey
    time_factor: float | None
    memory_factor: float | None
    start_s: float | None
    date: str
    memory_parts: Mapping[str, float] = field(default_factory=dict)
    memory_variant: str = ""


def calibrate(records: Sequence[RunRecord], efficiency: Efficiency, *, date: str = "") -> Efficiency:
    """`efficiency` with one correction for each stack of `records` (medians over its runs), replacing older ones.

    `date`: ISO date of records whose header has none.
    """
    found = corrections(records, date=date)
    kept = [old for old in efficiency.corrections if old.key not in {new.key for new in found}]
    return replace(efficiency, corrections=(*kept, *found))


def corrections(records: Iterable[RunRecord], *, date: str = "") -> tuple[Correction, ...]:
    """One correction a stack; records without a plan, without enough steps or of another device tell nothing."""
    readings: dict[CorrectionKey, list[Measured]] = {}
    for record in records:
        reading = read_run(record, date=date)
        if reading is not None:
            readings.setdefault(reading.key, []).append(reading)
    return tuple(_joined(key, runs) for key, runs in readings.items())


def read_run(record: RunRecord, *, date: str = "") -> Measured | None:
    """What `record` says about its own plan, or None."""
    plan = _plan_of(record)
    candidate = plan.picked or next(iter(plan.candidates), None) if plan is not None else None
    if plan is None or candidate is None or not _same_device(record, candidate):
        return None
    step_s = typical_step_s(record)
    time_factor = memory_factor = None
    if step_s is not None and candidate.time.step_s > 0:
        time_factor = _bounded(step_s * candidate.time.correction_factor / candidate.time.step_s)
    measured_bytes = _measured_bytes(record, candidate)
    plain_bytes = uncorrected(candidate.memory).expected_bytes
    if measured_bytes is not None and plain_bytes > 0:
        memory_factor = _bounded(measured_bytes / plain_bytes)
    if time_factor is None and memory_factor is None:
        return None
    return Measured(
        key=CorrectionKey(
            device=candidate.cluster.device.name,
            model_family=plan.model_family,
            precision=candidate.run_config.precision,
            method=plan.job.tune.method,
            num_params=plan.num_params,
            num_trainable=plan.num_trainable_params,
            stack=_stack(record.header),
            loss=candidate.run_config.loss,
            attention=candidate.run_config.attention,
        ),
        time_factor=time_factor,
        memory_factor=memory_factor,
        start_s=_start_s(record.steps),
        date=str(record.header.get("date") or record.header.get("started_at") or date)[:19],
        memory_parts=_memory_parts(record, candidate),
        memory_variant=candidate.run_config.variant,
    )


def _memory_parts(record: RunRecord, candidate: Candidate) -> dict[str, float]:
    """What the run says about other models of its stack: on a GPU, whose allocator tells allocated and reserved."""
    if candidate.cluster.device.kind == "cpu":
        return {}
    end: Mapping[str, Any] = record.end or {}
    seen = {
        name: end.get(f"peak_{name}_bytes")
        or max((getattr(line, f"{name}_bytes") or 0 for line in record.steps), default=0)
        for name in ("allocated", "reserved")
    }
    reading = Reading(allocated_bytes=seen["allocated"] or None, reserved_bytes=seen["reserved"] or None)
    return correct(uncorrected(candidate.memory), reading).factors if any(seen.values()) else {}


def typical_step_s(record: RunRecord) -> float | None:
    """Seconds of a step: the mean of a run's; of a bench, whose steps are all of mean length, the steadier median."""
    if record.header.get("kind") != "bench":
        return mean_step_s(record.steps)
    timed = [line.step_s for line in record.steps[_FEWEST_STEPS - 1 :]]
    return median(timed) if timed else None


def mean_step_s(steps: Sequence[StepLine]) -> float | None:
    """Mean seconds of a step after the first two: each line stands for the steps since the line before it.

    The mean, not the median: lengths vary from step to step, and the plan's step is a mean. Lines of more than five
    times the median (the machine slept, a save fell into them) are left out.
    """
    spans: list[tuple[int, float]] = []
    before = 0
    for line in steps:
        if before >= _FEWEST_STEPS - 1:
            spans.append((line.step - before, line.step_s))
        before = line.step
    if not spans:
        return None
    limit = 5.0 * median(seconds for _count, seconds in spans)
    usual = [(count, seconds) for count, seconds in spans if seconds <= limit and count > 0]
    total = sum(count for count, _seconds in usual)
    return sum(count * seconds for count, seconds in usual) / total if total else None


def _plan_of(record: RunRecord) -> Plan | None:
    try:
        return plan_from_json(record.header["plan"])
    except (KeyError, ValueError, TypeError):
        return None


def _same_device(record: RunRecord, candidate: Candidate) -> bool:
    """Whether the run was on the kind of device that its plan was for."""
    hardware: Mapping[str, Any] = record.header.get("hardware") or {}
    planned = candidate.cluster.device
    if hardware.get("kind") not in (None, planned.kind):
        return False
    if planned.kind != "cuda":
        return True
    seen = device_from_driver_name(str(hardware.get("device", "")))
    return seen is None or seen.name == planned.name


def _measured_bytes(record: RunRecord, candidate: Candidate) -> float | None:
    """Reserved memory plus the context that was counted (no process can read it), or a CPU process's resident size."""
    end: Mapping[str, Any] = record.end or {}
    if candidate.cluster.device.kind == "cpu":
        resident = end.get("host_rss_bytes")
        return float(resident) if resident else None
    seen = [line.reserved_bytes for line in record.steps if line.reserved_bytes]
    reserved = end.get("peak_reserved_bytes") or max(seen, default=None)
    return None if not reserved else float(reserved) + candidate.memory.terms.get("framework", 0)


def _start_s(steps: Sequence[StepLine]) -> float | None:
    """Seconds from the command to the first step; only where the first line is the first step."""
    first = steps[0] if steps else None
    if first is None or first.step != 1:
        return None
    return max(first.elapsed_s - first.step_s, 0.0)


def _stack(header: Mapping[str, Any]) -> str:
    versions: Mapping[str, Any] = header.get("versions") or {}
    return " ".join(f"{name}-{versions[name]}" for name in ("torch", "transformers") if versions.get(name))


def _bounded(factor: float) -> float | None:
    return factor if 1.0 / _LARGEST_FACTOR <= factor <= _LARGEST_FACTOR else None


def _joined(key: CorrectionKey, runs: Sequence[Measured]) -> Correction:
    starts = [run.start_s for run in runs if run.start_s is not None]
    newest = max(runs, key=lambda run: run.date)
    return Correction(
        key=key,
        time_factor=_middle([run.time_factor for run in runs]),
        memory_factor=_middle([run.memory_factor for run in runs]),
        start_s=median(starts) if starts else None,
        num_runs=len(runs),
        date=newest.date,
        memory_parts={part: factor for part, factor in newest.memory_parts.items() if part != FIXED},
        memory_fixed_bytes=newest.memory_parts.get(FIXED, 0.0),
        memory_variant=newest.memory_variant,
    )


def _middle(factors: Sequence[float | None]) -> float:
    """Median in the logarithm; 1 where nothing was measured."""
    known = [log(factor) for factor in factors if factor]
    return exp(median(known)) if known else 1.0
