"""Ledgers of published runs: a shape after the passes of a configuration, as a training program holds it.

Cached, because tables repeat models and configurations, and a batch size changes nothing in a ledger.
"""

import re
from dataclasses import replace

from stoker.catalogue.models.published import PublishedModel
from stoker.core.errors import StokerError
from stoker.core.job import Job
from stoker.core.ledger import Ledger, ModelArch
from stoker.core.run_config import RunConfig
from stoker.core.stack import Stack
from stoker.estimators.ledger_sums import LedgerSums, sum_ledger
from stoker.estimators.memory_stack import as_stack, saved_as
from stoker.techniques.passes import apply_passes
from stoker.validation.notes import Targets

_FEED_FORWARD = re.compile(r"^w\d|fc|mlp|gate|up_|down|4h|ffn|intermediate|^c_proj$|^dense$")

_ledgers: dict[tuple[object, ...], tuple[Ledger, LedgerSums]] = {}


def ledger_of(
    name: str, image_size: int | None, model: PublishedModel, job: Job, config: RunConfig, stack: Stack
) -> tuple[Ledger, LedgerSums]:
    """The ledger after all passes, and its sums; a batch size changes nothing in it."""
    tune = job.tune
    key = (
        stack,
        name,
        image_size,
        tune.method,
        tune.rank,
        str(tune.targets),
        tune.dropout,
        tune.double_quant,
        job.train.optimizer,
        replace(config, micro_batch_size=1, gradient_accumulation_steps=1, global_batch_size=1),
        config.gradient_accumulation_steps > 1,
    )
    if key not in _ledgers:
        arch = _arch(name, image_size, model)
        ledger = as_stack(
            _cast_by_fsdp(arch, job, config) if _fsdp_casts(config, stack) else _passed(arch, job, config),
            stack,
            compiled=config.capture == "compile",
            fused_attention=config.attention != "eager",
            several=config.gradient_accumulation_steps > 1,
        )
        _ledgers[key] = ledger, sum_ledger(ledger)
    return _ledgers[key]


def _fsdp_casts(config: RunConfig, stack: Stack) -> bool:
    sharded = config.parallel.dp_shard > 1 or stack.fsdp_casts == "always"
    return bool(stack.fsdp_casts) and sharded and config.precision == "bf16_amp"


def _cast_by_fsdp(arch: ModelArch, job: Job, config: RunConfig) -> Ledger:
    """fp32 state as under autocast, tensors saved as with 16-bit weights."""
    return saved_as(_passed(arch, job, config), _passed(arch, job, replace(config, precision="bf16_pure")))


def _passed(arch: ModelArch, job: Job, config: RunConfig) -> Ledger:
    """The passes; targets in another model's words are attention, or every linear where some are not attention's."""
    try:
        return apply_passes(arch, job, config)
    except StokerError as error:
        if error.code != "ST281" or not isinstance(job.tune.targets, list):
            raise
        wide = any(_FEED_FORWARD.search(name.casefold()) for name in job.tune.targets)
        targets: Targets = "all-linear" if wide else "attention"
        return apply_passes(arch, replace(job, tune=replace(job.tune, targets=targets)), config)


_archs: dict[tuple[str, int | None], ModelArch] = {}


def _arch(name: str, image_size: int | None, model: PublishedModel) -> ModelArch:
    key = (name, image_size if model.kind == "image" else None)
    if key not in _archs:
        _archs[key] = model.arch(image_size=key[1])
    return _archs[key]
