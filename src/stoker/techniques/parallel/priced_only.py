"""What a strategy raises that this version's engine cannot build: planned, never silently run as something else."""

from typing import NoReturn

from stoker.core.errors import PlanningError
from stoker.core.i18n import _


def refuse(name: str, *, fix: str = "") -> NoReturn:
    """Raises PlanningError ST382. `fix`: where pins of the job are not what stands in the way."""
    raise PlanningError(
        "ST382",
        _("{name} is planned; `stoker run` cannot run it in this version").format(name=name),
        place="run",
        fix=fix or _("pin dp_replicate (DDP) or dp_shard (FSDP) alone with run.placement: hbm, or remove the pins"),
    )
