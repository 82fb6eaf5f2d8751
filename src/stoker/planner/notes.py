"""Notes of a plan on what was pinned: what only a plan can do, what stays unused, and whether one GPU would do."""

from collections.abc import Sequence
from dataclasses import replace

from stoker.core.human import format_bytes, format_duration, format_large
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.ledger import ModelArch
from stoker.core.plan import Candidate
from stoker.planner.evaluate import Evaluator
from stoker.planner.rank import is_sure
from stoker.techniques.adapter.lora import has_stacked_experts
from stoker.techniques.adapter.targets import may_be_target, taken_for_expert


def planned_note(candidates: Sequence[Candidate]) -> str:
    """That `stoker run` cannot run the candidates that were pinned, once for all of them."""
    return next((f"{c.run_config.label}: {c.planned_only}" for c in candidates if c.planned_only), "")


def flash_note(job: Job) -> str:
    """That flash is named but not used."""
    if job.hardware.nvme is None or job.run.placement == "tiers":
        return ""
    return _("hardware.nvme is used with run.placement: tiers only; here all state lies in the GPU")


def experts_note(job: Job, arch: ModelArch) -> str:
    """That 4-bit weights leave the experts of a mixture as they are, with their size (case 6)."""
    if job.tune.method != "qlora":
        return ""
    experts = sum(g.repeats * linear.num_params for g in arch.groups for linear in g.linears if linear.count > 1)
    if not experts:
        return ""
    each = 4 if job.tune.unquantised == "fp32" else 2
    return _(
        "experts are NOT quantised: {experts} of {total} parameters keep {each} bytes each, {size} in all, because "
        "bitsandbytes replaces linear modules and a stack of experts is none"
    ).format(
        experts=format_large(experts),
        total=format_large(arch.num_params),
        each=each,
        size=format_bytes(experts * each),
    )


def beside_experts_note(job: Job, arch: ModelArch) -> str:
    """That linears which the job's targets name get no adapter, because peft would take them for experts."""
    if job.tune.method == "full" or not has_stacked_experts(arch):
        return ""
    linears = [linear.name for g in arch.groups if g.kind == "block" for linear in g.linears if linear.count == 1]
    left = [name for name in linears if may_be_target(name, job.tune.targets) and taken_for_expert(name)]
    if not left:
        return ""
    return _("no adapters on {names}: beside experts, peft would put them on every expert instead").format(
        names=", ".join(dict.fromkeys(left))
    )


def single_note(evaluator: Evaluator, candidates: Sequence[Candidate], pick: Candidate | None) -> str:
    """Where only several GPUs were asked for: what one of the pick would take, if the job fits it."""
    if pick is None or pick.cluster.num_gpus == 1 or any(c.cluster.num_gpus == 1 for c in candidates):
        return ""
    job = evaluator.job
    hardware = replace(job.hardware, num_gpus=1, nodes=1)
    alone = evaluator.variant("one GPU", replace(job, hardware=hardware, run=replace(job.run, parallel="auto")))
    found = alone.candidate(replace(pick.cluster, num_gpus=1, nodes=1))
    if found is None or not is_sure(found):
        return ""
    return _("one {gpu} would do too: {time} with {config}").format(
        gpu=found.cluster.device.name, time=format_duration(found.time.total_s), config=found.run_config.label
    )
