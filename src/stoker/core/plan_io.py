"""plan.json: a plan written in the published form and read back without loss.

The keys are DESIGN.md's `plan --json` (gpu, num_gpus, run_config, memory, time, cost, ...) plus what a run needs to
start from the file alone: the job, the resolved model, the profile, and each candidate's cluster.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.core.codec import decode, dumps, encode, loads
from stoker.core.errors import PlanningError
from stoker.core.estimate import CostEstimate, MemoryEstimate, TimeEstimate
from stoker.core.hardware import Cluster
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.paths import write_whole
from stoker.core.plan import PLAN_SCHEMA_VERSION, Candidate, Plan, Rejection, ResolvedModel
from stoker.core.profile import DataProfile
from stoker.core.run_config import RunConfig
from stoker.core.schedule import TierSchedule

if TYPE_CHECKING:
    from stoker.core.explanation import Lever

_SAME = (
    "num_params",
    "num_trainable_params",
    "pick",
    "runner_up",
    "summary",
    "smaller_gpu",
    "usd_krw",
    "usd_krw_date",
    "model_family",
)


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """`plan` as JSON types; every number is finite or null."""
    return {
        "schema_version": plan.schema_version,
        "job": {**encode(plan.job), "base_dir": plan.job.base_dir, "source_path": plan.job.source_path},
        **{name: encode(getattr(plan, name)) for name in _SAME},
        "candidates": [_candidate_to_json(candidate) for candidate in plan.candidates],
        "rejected": encode(plan.rejected),
        "offers_snapshot": {"date": plan.offers_date, "age_days": plan.offers_age_days},
        "levers": encode(plan.levers),
        "levers_for": plan.levers_for,
        "notes": list(plan.notes),
        "model": encode(plan.model),
        "profile": encode(plan.profile),
    }


def plan_from_json(data: Mapping[str, Any]) -> Plan:
    """The plan of `plan_to_json`'s output. Raises ValueError naming the key that is wrong."""
    version = data.get("schema_version") if isinstance(data, Mapping) else None
    if not isinstance(version, int) or version > PLAN_SCHEMA_VERSION:
        raise ValueError(f"schema_version {version!r}")
    try:
        prices = data["offers_snapshot"]
        return Plan(
            schema_version=version,
            job=decode(Job, data["job"], "job"),
            profile=decode(DataProfile, data["profile"], "profile"),
            model=decode(ResolvedModel, data["model"], "model"),
            candidates=tuple(_candidate_from_json(row, f"candidates[{i}]") for i, row in enumerate(data["candidates"])),
            rejected=tuple(decode(Rejection, row, f"rejected[{i}]") for i, row in enumerate(data["rejected"])),
            notes=tuple(str(note) for note in data["notes"]),
            levers=_levers(data.get("levers", ())),
            levers_for=str(data.get("levers_for", "")),
            offers_date=prices["date"],
            offers_age_days=prices["age_days"],
            **{name: data[name] for name in _SAME},
        )
    except KeyError as error:
        raise ValueError(f"the key {error.args[0]} is missing") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def _levers(rows: Sequence[Any]) -> "tuple[Lever, ...]":
    if not rows:
        return ()
    from stoker.core.explanation import Lever

    return tuple(decode(Lever, row, f"levers[{i}]") for i, row in enumerate(rows))


def read_plan(path: Path | str) -> Plan:
    """The plan in a file. Raises PlanningError ST328."""
    file = Path(path)
    try:
        return plan_from_json(loads(file.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise PlanningError(
            "ST328",
            _("this is no plan that can be read: {reason}").format(reason=reason[:200]),
            place=str(file),
            fix=_("write it again with `stoker plan JOB -o {name}`").format(name=file.name),
        ) from error


def write_plan(plan: Plan, path: Path | str) -> Path:
    """Write `plan` to a file in one rename. Raises PlanningError ST329 where the folder cannot be written."""
    file = Path(path)
    text = dumps(plan_to_json(plan), indent=2) + "\n"
    try:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        write_whole(file, text)
    except (OSError, ValueError) as error:
        raise PlanningError(
            "ST329",
            getattr(error, "strerror", None) or str(error),
            place=str(file),
            fix=_("choose a folder that exists and can be written"),
        ) from error
    return file


def _candidate_to_json(candidate: Candidate) -> dict[str, Any]:
    cluster, memory, time = candidate.cluster, candidate.memory, candidate.time
    return {
        "rank": candidate.rank,
        "gpu": cluster.device.name,
        "num_gpus": cluster.num_gpus,
        "nodes": cluster.nodes,
        "run_config": encode(candidate.run_config),
        "fits": candidate.fits,
        "fit_probability": round(memory.fit_probability, 6),
        "memory": encode(memory),
        "schedule": encode(candidate.schedule),
        "planned_only": candidate.planned_only,
        "time": encode(time),
        "cost": encode(candidate.cost),
        "offers": encode(candidate.offers),
        "why": candidate.why,
        "cluster": encode(cluster),
    }


def _candidate_from_json(row: Mapping[str, Any], place: str) -> Candidate:
    hints = {"memory": MemoryEstimate, "time": TimeEstimate, "run_config": RunConfig, "cluster": Cluster}
    cost, schedule = row["cost"], row.get("schedule")
    return Candidate(
        rank=decode(int, row["rank"], f"{place}.rank"),
        cost=None if cost is None else decode(CostEstimate, cost, f"{place}.cost"),
        offers=tuple(decode(CostEstimate, offer, f"{place}.offers") for offer in row["offers"]),
        why=decode(str, row["why"], f"{place}.why"),
        schedule=None if schedule is None else decode(TierSchedule, schedule, f"{place}.schedule"),
        planned_only=decode(str, row.get("planned_only", ""), f"{place}.planned_only"),
        **{name: decode(hint, row[name], f"{place}.{name}") for name, hint in hints.items()},
    )
