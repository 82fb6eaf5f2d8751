"""Own runs as rows: what a run folder's plan predicted beside what its record measured.

Roles are declared by the rule that calibration follows: of each stack (device, model, precision, method) the first run
is `calibration`, later ones are `holdout`, scored after what the first taught; runs without an end or with too few
steps are `excluded`, with the reason.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.core.errors import StokerError
from stoker.core.plan import Candidate, Plan
from stoker.core.plan_io import plan_from_json
from stoker.core.record import RunRecord
from stoker.core.record_io import read_record
from stoker.core.units import GIB
from stoker.estimators.calibrate import Measured, mean_step_s, read_run


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRow:
    """One quantity of one run: seconds a step or GiB reserved plus context. `error`: None where excluded."""

    run: str
    model: str
    gpu: str
    method: str
    precision: str
    metric: str
    unit: str
    measured: float | None
    predicted: float | None
    low: float | None
    high: float | None
    role: str
    reason: str = ""

    @property
    def error(self) -> float | None:
        if not self.measured or self.predicted is None or self.role == "excluded":
            return None
        return abs(self.predicted - self.measured) / self.measured


def own_rows(folders: Iterable[Path]) -> list[OwnRow]:
    """Two rows a run folder (or record.jsonl), the oldest run first; folders without a readable record are excluded."""
    rows: list[OwnRow] = []
    runs: list[tuple[str, Path, RunRecord]] = []
    for folder in folders:
        try:
            record = read_record(folder)
        except StokerError as error:
            rows.append(_excluded(folder, error.problem))
            continue
        runs.append((str(record.header.get("date") or ""), folder, record))
    taught: dict[object, Measured] = {}
    for _date, folder, record in sorted(runs, key=lambda run: (run[0], str(run[1]))):
        rows += _rows_of(folder, record, taught)
    return rows


def run_folders(root: Path) -> list[Path]:
    """Folders below `root` (itself, or one or two levels down) that hold a record."""
    found = {path.parent for depth in ("", "*/", "*/*/") for path in root.glob(f"{depth}record.jsonl")}
    return sorted(found)


def _excluded(folder: Path, reason: str) -> OwnRow:
    return OwnRow(
        run=str(folder),
        model="",
        gpu="",
        method="",
        precision="",
        metric="",
        unit="",
        measured=None,
        predicted=None,
        low=None,
        high=None,
        role="excluded",
        reason=reason,
    )


def _rows_of(folder: Path, record: RunRecord, taught: dict[object, Measured]) -> Sequence[OwnRow]:
    reading = read_run(record)
    plan = _plan(record)
    candidate = plan.picked if plan is not None else None
    if reading is None or plan is None or candidate is None:
        return [_excluded(folder, "no plan, too few steps, or another device than planned")]
    before = taught.get(reading.key)
    taught.setdefault(reading.key, reading)
    role = "calibration" if before is None else "holdout"
    return [
        _row(folder, plan, candidate, role, _step(record, candidate, before)),
        _row(folder, plan, candidate, role, _memory(reading, candidate, before)),
    ]


Figures = tuple[str, str, float | None, float, float, float]


def _step(record: RunRecord, candidate: Candidate, before: Measured | None) -> Figures:
    """Seconds a step: the plan's, without its own correction, times what the stack's first run taught."""
    time = candidate.time
    factor = (before.time_factor if before and before.time_factor else 1.0) / time.correction_factor
    width = (time.low_s / time.total_s, time.high_s / time.total_s) if time.total_s else (1.0, 1.0)
    expected = time.step_s * factor
    return "step_time_s", "s", mean_step_s(record.steps), expected, expected * width[0], expected * width[1]


def _memory(reading: Measured, candidate: Candidate, before: Measured | None) -> Figures:
    """GiB of the process: reserved and context, as `_step`."""
    memory = candidate.memory
    plain = memory.expected_bytes / memory.correction_factor / GIB
    measured = plain * reading.memory_factor if reading.memory_factor else None
    factor = before.memory_factor if before and before.memory_factor else 1.0
    low, high = memory.low_bytes / memory.expected_bytes, memory.high_bytes / memory.expected_bytes
    return "peak_mem_gb", "GiB process", measured, plain * factor, plain * factor * low, plain * factor * high


def _row(folder: Path, plan: Plan, candidate: Candidate, role: str, figures: Figures) -> OwnRow:
    metric, unit, measured, predicted, low, high = figures
    return OwnRow(
        run=str(folder),
        model=plan.model.name,
        gpu=candidate.cluster.label,
        method=plan.job.tune.method,
        precision=candidate.run_config.precision,
        metric=metric,
        unit=unit,
        measured=measured,
        predicted=predicted,
        low=low,
        high=high,
        role=role if measured else "excluded",
        reason="" if measured else "not measured",
    )


def _plan(record: RunRecord) -> Plan | None:
    try:
        return plan_from_json(record.header["plan"])
    except (KeyError, ValueError, TypeError):
        return None
