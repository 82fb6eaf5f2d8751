"""Whether this version's engine can run a configuration, or a plan only prices it."""

from typing import Final

from stoker.core.i18n import _
from stoker.core.ledger import ModelArch
from stoker.core.plan import ResolvedModel
from stoker.core.run_config import RunConfig
from stoker.techniques.parallel import parallel
from stoker.techniques.parallel.priced_only import refuse

_TIER_PRECISIONS: Final = ("bf16", "bf16_amp", "fp16_amp", "fp32")


def planned_only(config: RunConfig, arch: ModelArch) -> str:
    """Why `stoker run` cannot run `config` of `arch` yet, in one sentence; empty where it can."""
    if arch.is_approximate:
        return _("planned; `stoker run` does not train vision-language models yet")
    return _configuration_planned_only(config)


def _configuration_planned_only(config: RunConfig) -> str:
    if config.placement == "tiers" and not _tiers_run(config):
        return _("planned; `stoker run` executes tiers layer by layer, in bf16, bf16_amp, fp16_amp or fp32, on one GPU")
    if not parallel(config.parallel).can_run:
        return _("planned; `stoker run` cannot run {name} yet").format(name=config.parallel.label)
    return ""


def _tiers_run(config: RunConfig) -> bool:
    """Whether the tier engine executes the schedule: its own kind, masters or fp32 weights, no other ranks."""
    shares_run = config.tiers is None or config.tiers.layer_major
    return shares_run and config.precision in _TIER_PRECISIONS and config.parallel.world_size == 1


def require_runnable(config: RunConfig, model: ResolvedModel | None = None) -> None:
    """Raises PlanningError ST382 for a model or a configuration that is planned only; nothing has started then."""
    if model is not None and model.is_approximate:
        refuse(model.name, fix=_("name a model of text or of images; a vision-language model is priced only"))
    if _configuration_planned_only(config):
        refuse(f"placement {config.placement}" if config.placement != "hbm" else config.parallel.label)
