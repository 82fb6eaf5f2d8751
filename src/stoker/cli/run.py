"""`stoker run JOB|PLAN.json`: plan if need be, then train exactly that; the same command again resumes."""

import contextlib
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli.console import notice, print_answer, print_json
from stoker.cli.options import JsonOption, LangOption, SetOption
from stoker.core.i18n import _

if TYPE_CHECKING:
    from stoker.core.job import Job
    from stoker.core.plan import Plan
    from stoker.core.record import RunRecord

EXIT_NOTHING_FITS = 3
PLAN_NAME = "plan.json"


def run(
    source: Annotated[
        Path, typer.Argument(help=_("job file (YAML), or a plan.json"), metavar="JOB|PLAN.json", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help=_("run folder; by default runs/NAME-HASH of the job"), show_default=False),
    ] = None,
    overrides: SetOption = [],  # noqa: B006 typer copies it
    yes: Annotated[bool, typer.Option("--yes", "-y", help=_("run also when the plan says it may not fit"))] = False,
    as_json: JsonOption = False,
    lang: LangOption = "",
) -> None:
    from stoker.cli.progress import run_progress
    from stoker.engine.run import run as run_plan
    from stoker.techniques.runnable import require_runnable

    plan = _plan_of(source, overrides)
    picked = plan.picked or (plan.candidates[0] if plan.candidates else None)
    if picked is None or (plan.pick is None and not yes):
        _tell_nothing_fits(plan)
        raise typer.Exit(EXIT_NOTHING_FITS)
    require_runnable(picked.run_config, plan.model)  # before anything is written
    folder = out or _default_folder(plan.job)
    notice(_("run folder: {path}").format(path=folder))
    plan = _as_begun(plan, folder)
    picked = plan.picked or picked
    notice(plan.summary or picked.why)
    _write_inputs(plan, folder)
    record = run_plan(plan, folder, progress=run_progress(plan.job.goal.currency, plan.usd_krw))
    _calibrate(record)
    _answer(record, folder, as_json=as_json)


def _plan_of(source: Path, overrides: list[str]) -> "Plan":
    """The plan of a job on this machine, or the plan in a file."""
    from stoker.core.io import read_job
    from stoker.core.plan_io import read_plan

    if source.suffix.lower() == ".json":
        if overrides:
            from stoker.core.errors import JobFileError

            raise JobFileError(
                "ST007",
                _("--set changes a job; a plan is run as it is"),
                place=str(source),
                fix=_("give the job file, or plan again"),
            )
        return read_plan(source)
    return plan_here(read_job(source, overrides))


def plan_here(job: "Job") -> "Plan":
    """The plan of `job` for one device of this machine, whatever hardware the job names."""
    from stoker.planner.gather import plan_job

    here = replace(job.hardware, here=True, gpus=None, num_gpus=1, max_gpus=1, nodes=1)
    return plan_job(replace(job, hardware=here))


def _default_folder(job: "Job") -> Path:
    """runs/NAME-HASH: the same job always lands in the same folder, which is how it resumes."""
    from stoker.core.codec import dumps

    name = Path(job.source_path).stem or "job"
    return Path("runs") / f"{name}-{hashlib.sha256(dumps(job).encode('utf-8')).hexdigest()[:8]}"


def _as_begun(plan: "Plan", folder: Path) -> "Plan":
    """`plan` with the candidates that the folder's run began with, where it asks for the same.

    The search may pick another micro-batch today (less free memory, new corrections), which would change the draws
    of dropout in the middle of a run.
    """
    from stoker.core.codec import encode
    from stoker.core.errors import PlanningError
    from stoker.core.plan_io import read_plan

    file = folder / PLAN_NAME
    if not file.is_file():
        return plan
    try:
        begun = read_plan(file)
    except PlanningError as error:
        notice(_("{file} cannot be read and is written anew: {problem}").format(file=file, problem=error.problem))
        with contextlib.suppress(OSError):
            file.unlink()
        return plan
    if begun.picked is None or plan.picked is None:
        return plan
    same = begun.picked.cluster.device.name == plan.picked.cluster.device.name
    same = same and encode(begun.job.run) == encode(plan.job.run) and begun.picked.cluster.num_gpus == 1
    same = same and begun.job.train.global_batch_size == plan.job.train.global_batch_size
    if not same:
        return plan
    return replace(plan, candidates=begun.candidates, pick=begun.pick, runner_up=begun.runner_up, summary=begun.summary)


def _write_inputs(plan: "Plan", folder: Path) -> None:
    """job.yaml and plan.json of the run; a folder that exists keeps its own, so that a mix-up shows."""
    from stoker.core.io import job_to_yaml
    from stoker.core.plan_io import write_plan
    from stoker.engine.preflight import check_writable

    check_writable(folder)
    if not (folder / PLAN_NAME).exists():  # written last: where it stands, job.yaml is whole
        (folder / "job.yaml").write_text(job_to_yaml(absolute_paths(plan.job)), encoding="utf-8")
        write_plan(plan, folder / PLAN_NAME)


def absolute_paths(job: "Job") -> "Job":
    """The job with its file names absolute, so that the copy in the run folder works from there."""
    base = Path(job.base_dir).resolve()

    def absolute(name: str | None) -> str | None:
        return str(base / name) if name and (base / name).exists() else name

    data = replace(job.data, train=absolute(job.data.train), eval=absolute(job.data.eval), test=absolute(job.data.test))
    model = absolute(job.model) if isinstance(job.model, str) else job.model
    return replace(job, data=data, tokenizer=absolute(job.tokenizer), model=model or job.model)


def _tell_nothing_fits(plan: "Plan") -> None:
    notice(_("nothing that fits was found; --yes runs the first candidate all the same"))
    for rejection in plan.rejected[:5]:
        notice(f"  {rejection.num_gpus} x {rejection.gpu}: {rejection.reason} -> {rejection.fix}")


def _calibrate(record: "RunRecord") -> None:
    """Feed what was measured back into the next plan; a cache that cannot be written is no reason to fail."""
    from stoker.catalogue.efficiency import load_efficiency, write_corrections
    from stoker.estimators.calibrate import calibrate

    try:
        write_corrections(calibrate([record], load_efficiency()).corrections)
    except OSError as error:
        notice(_("what was measured could not be kept for the next plan: {error}").format(error=error))


def _answer(record: "RunRecord", folder: Path, *, as_json: bool) -> None:
    end = record.end or {}
    if as_json:
        print_json(
            {
                "run": str(folder),
                "status": record.status,
                "steps": end.get("steps"),
                "metrics": end.get("metrics", {}),
                "elapsed_s": end.get("elapsed_s"),
                "model": str(folder / "model") if record.status == "finished" else None,
            }
        )
        return
    lines = [f"{name}: {value:.4f}" for name, value in (end.get("metrics") or {}).items()]
    if record.status == "finished":
        lines.append(_("model: {path}").format(path=folder / "model"))
        lines.append(_("next: stoker report {path}").format(path=folder))
    else:
        lines.append(_("stopped after step {step}; the same command resumes").format(step=end.get("steps")))
    print_answer("\n".join(lines))
