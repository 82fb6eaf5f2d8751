"""Packages beyond torch, transformers and peft that a job's techniques need where it runs, by import name.

Planning names them (a rented machine's packages cannot be seen from here); running looks for them before it starts.
"""

from collections.abc import Iterable

from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.techniques.adapter.qlora import QLoRA, require_bitsandbytes
from stoker.techniques.optimizer import optimizer
from stoker.techniques.optimizer.low_bit import LowBitAdamW
from stoker.techniques.optimizer.low_bit import require_bitsandbytes as require_for_states
from stoker.techniques.precision.fp8 import Fp8, require_torchao


def packages_needed(job: Job) -> tuple[str, ...]:
    """Import names, sorted, without repeats."""
    return tuple(sorted(set(_needed(job))))


def _needed(job: Job) -> Iterable[str]:
    if job.tune.method == QLoRA.name or isinstance(optimizer(job.train.optimizer), LowBitAdamW):
        yield "bitsandbytes"
    if job.run.precision == Fp8.name:
        yield "torchao"


def package_note(job: Job) -> str | None:
    """One line for the plan, or None where nothing more is needed."""
    names = packages_needed(job)
    if not names:
        return None
    return _("the machine that runs this needs beside torch: {names}").format(names=", ".join(names))


def require_packages(job: Job) -> None:
    """Raises EnvironmentProblem ST580, ST582, ST588 where this machine lacks one."""
    if job.tune.method == QLoRA.name:
        require_bitsandbytes()
    if job.run.precision == Fp8.name:
        require_torchao()
    technique = optimizer(job.train.optimizer)
    if isinstance(technique, LowBitAdamW):
        require_for_states(technique.name)
