"""What a table leaves open about a run that did run: the plainest choice that fits its GPU is the one that was made.

Open are a recompute that the table does not state (recipes choose the least that fits), the sharding of a Megatron
row without one (state beyond the GPU was sharded whatever the row says), a micro-batch that had to be assumed, and,
of a program that nobody described, whether a bare `bf16` or `fp16` mixes with fp32 weights or trains 16-bit ones, and
whether its loss widens the logits.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from stoker.core.measurement import Measurement
from stoker.core.run_config import LossKernel, Precision, Recompute, RunConfig, ZeroStage

_OPEN: Final = ("recipe", "unstated", "unknown", "n/a")
_FEW_IMAGES: Final = 8
_WIDE_LOSSES: Final = ("eager", "upcast")
_PURE: Final[dict[Precision, Precision]] = {"bf16_amp": "bf16_pure", "fp16_amp": "bf16_pure"}  # the same bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One way the run may have been; `chosen`: what differs from the plainest."""

    config: RunConfig
    chosen: tuple[str, ...] = ()


def alternatives(
    measurement: Measurement,
    config: RunConfig,
    *,
    batch_assumed: bool,
    precision_open: bool = False,
    loss_open: bool = False,
) -> Iterator[Alternative]:
    """`config` first, then less plain ones: sharded, smaller batches, more recompute, a 16-bit loss, 16-bit weights.

    OOM rows leave nothing open.
    """
    recomputes: tuple[Recompute, ...] = (config.recompute,)
    stages: tuple[ZeroStage, ...] = (config.parallel.zero_stage,)
    sizes: tuple[int, ...] = (config.micro_batch_size,)
    formats: tuple[Precision, ...] = (config.precision,)
    losses: tuple[LossKernel, ...] = (config.loss,)
    if measurement.metric != "oom":
        if loss_open and config.loss in _WIDE_LOSSES:
            losses = (config.loss, "narrow")
        if precision_open and config.precision in _PURE:
            formats = (config.precision, _PURE[config.precision])
        recomputes = _recomputes(measurement, config)
        if config.parallel.zero_stage == 1 and config.parallel.dp_shard > 1 and "fsdp" not in measurement.strategy:
            stages = (1, 3)
        if batch_assumed:
            sizes = _sizes(config.micro_batch_size, least=_FEW_IMAGES if "img" in measurement.unit.casefold() else 1)
    for number_format, kernel, stage, recompute, size in product(formats, losses, stages, recomputes, sizes):
        changes = (
            ("precision", number_format != config.precision),
            ("loss", kernel != config.loss),
            ("sharding", stage != config.parallel.zero_stage),
            ("recompute", recompute != config.recompute),
            ("micro-batch size", size != config.micro_batch_size),
        )
        yield Alternative(
            config=replace(
                config,
                parallel=replace(config.parallel, zero_stage=stage),
                precision=number_format,
                loss=kernel,
                recompute=recompute,
                micro_batch_size=size,
                global_batch_size=config.global_batch_size // config.micro_batch_size * size,
            ),
            chosen=tuple(name for name, differs in changes if differs),
        )


def _recomputes(measurement: Measurement, config: RunConfig) -> tuple[Recompute, ...]:
    words = measurement.recompute.casefold()
    is_open = not words or any(word in words for word in _OPEN)
    return ("none", "selective", "full") if is_open and config.recompute == "none" else (config.recompute,)


def _sizes(most: int, *, least: int) -> tuple[int, ...]:
    sizes = [most]
    while sizes[-1] > least:
        sizes.append(sizes[-1] // 2)
    return tuple(sizes)
