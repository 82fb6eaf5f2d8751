"""The ledger of a job under a run configuration: every technique's pass, in one stated order."""

from dataclasses import replace

from stoker.core.job import Job
from stoker.core.ledger import Ledger, ModelArch, ModuleGroup, untouched
from stoker.core.run_config import RunConfig
from stoker.techniques.adapter import adapter
from stoker.techniques.attention import attention
from stoker.techniques.optimizer import optimizer
from stoker.techniques.parallel import parallel
from stoker.techniques.placement import placement
from stoker.techniques.precision import precision
from stoker.techniques.protocols import Optimizer
from stoker.techniques.recompute import recompute


def apply_passes(arch: ModelArch, job: Job, config: RunConfig) -> Ledger:
    """`arch` after adapter, precision, attention, recompute, optimizer, parallel and placement, in that order.

    Bytes are per parameter and per copy; sums belong to the estimators. Raises PlanningError ST380 for a pinned
    technique that is not built, ModelError ST280 or ST281 for a recompute or an adapter that finds nothing to act on.
    """
    return one_rank(whole_model(arch, job, config), config)


def whole_model(arch: ModelArch, job: Job, config: RunConfig) -> Ledger:
    """The ledger of the undivided model: the passes that no number of GPUs changes, so a search makes them once."""
    ledger = adapter(job.tune.method).apply(untouched(arch), job.tune)
    number_format = precision(config.precision)
    ledger = number_format.apply(ledger)
    several = config.gradient_accumulation_steps > 1
    ledger = replace(ledger, accumulates_fp32=number_format.accumulates_fp32 and several)
    ledger = attention(config.attention).apply(ledger)
    ledger = recompute(config.recompute).apply(ledger)
    return _with_optimizer(ledger, optimizer(job.train.optimizer))


def one_rank(ledger: Ledger, config: RunConfig) -> Ledger:
    """`ledger` as one rank holds it."""
    return placement(config.placement).apply(parallel(config.parallel).apply(ledger, config.parallel))


def _with_optimizer(ledger: Ledger, technique: Optimizer) -> Ledger:
    def priced(group: ModuleGroup) -> ModuleGroup:
        return replace(group, state_bytes=technique.state_bytes(group))

    priced_ledger = ledger.map_groups(priced, by=technique.name)
    return replace(
        priced_ledger,
        step_temp_bytes_per_param=technique.step_temp_bytes_per_param,
        step_temp_bytes=max((technique.step_temp_bytes(group) for group in ledger.groups), default=0.0),
        step_flops=sum(group.repeats * technique.step_flops(group) for group in ledger.groups),
        states_may_page=technique.states_may_page,
    )
