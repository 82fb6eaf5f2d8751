"""Whether this version's engine can run a configuration, or a plan only prices it."""

from stoker.core.i18n import _
from stoker.core.run_config import RunConfig
from stoker.techniques.parallel import parallel
from stoker.techniques.parallel.priced_only import refuse
from stoker.techniques.placement import placement


def planned_only(config: RunConfig) -> str:
    """Why `stoker run` cannot run `config` yet, in one sentence; empty where it can."""
    if not placement(config.placement).can_run:
        return _("planned; `stoker run` cannot execute tiers yet")
    if not parallel(config.parallel).can_run:
        return _("planned; `stoker run` cannot run {name} yet").format(name=config.parallel.label)
    return ""


def require_runnable(config: RunConfig) -> None:
    """Raises PlanningError ST382 for a configuration that is planned only; nothing has started then."""
    if planned_only(config):
        refuse(config.parallel.label if placement(config.placement).can_run else f"placement {config.placement}")
