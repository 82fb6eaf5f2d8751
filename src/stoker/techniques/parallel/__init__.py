"""Parallel strategies: what is sharded, which collectives a step sends, which buffers that needs."""

from stoker.core.errors import PlanningError
from stoker.core.i18n import _
from stoker.core.run_config import Parallel
from stoker.techniques.parallel.ddp import DDP
from stoker.techniques.parallel.fsdp import FSDP
from stoker.techniques.parallel.single import Single
from stoker.techniques.protocols import ParallelTechnique

PARALLELS: tuple[ParallelTechnique, ...] = (Single(), DDP(), FSDP())


def parallel(degrees: Parallel) -> ParallelTechnique:
    """The strategy that these degrees mean. Raises PlanningError ST380 for a mix that is not built yet."""
    for technique in PARALLELS:
        if technique.matches(degrees):
            return technique
    raise PlanningError(
        "ST380",
        _("{kind} {name} is not built yet").format(kind="parallel", name=degrees.label),
        place="run.parallel",
        fix=_("one of: {names}").format(names="dp_replicate: N, dp_shard: N"),
    )
