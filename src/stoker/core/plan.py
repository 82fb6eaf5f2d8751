"""A plan: the ranked candidates for a job, what was rejected and why, and which prices were used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stoker.core.estimate import CostEstimate, MemoryEstimate, TimeEstimate
from stoker.core.hardware import Cluster
from stoker.core.job import Job
from stoker.core.profile import DataProfile
from stoker.core.run_config import RunConfig
from stoker.core.schedule import TierSchedule

if TYPE_CHECKING:
    from stoker.core.explanation import Lever  # what no plan that fits ever makes

PLAN_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to run the job: a cluster, a run configuration, and what they give. `why`: one sentence.

    `schedule`: under placement tiers, what lies where. `planned_only`: why `stoker run` cannot run it yet, or empty.
    """

    rank: int
    cluster: Cluster
    run_config: RunConfig
    memory: MemoryEstimate
    time: TimeEstimate
    cost: CostEstimate | None = None
    offers: tuple[CostEstimate, ...] = ()
    why: str = ""
    schedule: TierSchedule | None = None
    planned_only: str = ""

    @property
    def fits(self) -> bool:
        return self.memory.fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A way that cannot work: `reason`, and `fix`: what would make it work."""

    gpu: str
    num_gpus: int
    reason: str
    fix: str
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModel:
    """What `job.model` turned out to be.

    `folder`: local folder with config.json and weights (a hub snapshot or the user's own), or None.
    `config`: the Hugging Face config as a mapping; with no folder the weights are random if `random_weights`,
    else they are missing here and `run` says how to fetch them. `notes`: one line each on what was assumed.
    `is_approximate`: the shape leaves a part of the model out, so it is planned only.
    """

    name: str
    config: Mapping[str, Any]
    folder: str | None = None
    tokenizer: str | None = None
    random_weights: bool = False
    notes: tuple[str, ...] = ()
    is_approximate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer of `stoker plan`. `pick` and `runner_up` are ranks in `candidates`; None when nothing fits.

    `notes`: one line each on what could not be looked up or was assumed. `summary`: the pick in one sentence.
    `model_family`: the catalogue's family of the model, by which own runs correct later plans. `levers`: where nothing
    fits, what would make `levers_for` (the cluster that comes nearest) fit.
    """

    job: Job
    profile: DataProfile
    num_params: int
    num_trainable_params: int
    candidates: tuple[Candidate, ...]
    model: ResolvedModel
    rejected: tuple[Rejection, ...] = ()
    pick: int | None = None
    runner_up: int | None = None
    summary: str = ""
    smaller_gpu: str = ""
    notes: tuple[str, ...] = ()
    offers_date: str | None = None
    offers_age_days: int | None = None
    usd_krw: float | None = None
    usd_krw_date: str | None = None
    model_family: str = ""
    levers: "tuple[Lever, ...]" = ()
    levers_for: str = ""
    schema_version: int = PLAN_SCHEMA_VERSION

    def candidate(self, rank: int | None) -> Candidate | None:
        """The candidate of `rank`, or None."""
        return next((c for c in self.candidates if c.rank == rank), None)

    @property
    def picked(self) -> Candidate | None:
        return self.candidate(self.pick)
