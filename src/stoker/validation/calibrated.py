"""After one calibration run: the smallest run of a stack corrects the others of that stack, which are then scored.

A stack is source, method, precision, GPU and library version; of a source with several programs (TensorFlow and
PyTorch, an image and a text example) also the program, and its documented variants: attention kernel, compilation; for
memory also what decides which bytes lie where (sharding, recomputation, loss kernel). Memory: all readings of the
calibration run move the parts of the estimate (`estimators.residual`); time: its ratio moves the classes of work that
both runs have (`estimators.residual_time`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from stoker.core.stack import Reading as ReadingName
from stoker.estimators.residual import MemoryCorrection, Reading, correct, corrected, transferred
from stoker.estimators.residual_time import shared_factor, time_shares
from stoker.estimators.scenario import Scenario, mean_batch
from stoker.validation.predict import memory_in
from stoker.validation.score import Counted, Quantity, library_version, run_key

_DEEPSPEED = re.compile(r"deepspeed|\bzero", re.IGNORECASE)


def calibrated(counted: Iterable[Counted], quantity: Quantity) -> list[Counted]:
    """`counted` of `quantity` after calibration, the calibration runs themselves left out; stacks of one run too."""
    stacks: dict[tuple[object, ...], list[Counted]] = defaultdict(list)
    for one in counted:
        if one.quantity == quantity:
            stacks[stack_key(one)].append(one)
    return [fixed for members in stacks.values() for fixed in _calibrate(members, quantity)]


def stack_key(one: Counted) -> tuple[object, ...]:
    """What one calibration run speaks for."""
    measurement = one.compared.measurement
    assert measurement is not None
    named = (one.source, measurement.method, measurement.precision, one.gpu, library_version(measurement))
    scenario = _scenario(one)
    kernels = (scenario.config.attention, scenario.native_attention, scenario.config.capture)
    program = (*named, scenario.stack.name, *kernels)
    return (*program, *_layout(one)) if one.quantity == "memory" else program


def _layout(one: Counted) -> tuple[object, ...]:
    """Which bytes lie where, as documented: a choice that was only made so that the run fits is no variant."""
    trial = one.compared.trial
    assert trial is not None
    config, assumed = trial.scenario.config, trial.widened
    return (
        "deepspeed" if _DEEPSPEED.search(trial.measurement.strategy) else "",
        config.parallel.form,
        config.placement,
        config.precision,
        trial.scenario.stack.recompute if "recompute" in assumed else config.recompute,
        trial.scenario.stack.loss if "loss" in assumed else config.loss,
    )


def _calibrate(members: Sequence[Counted], quantity: Quantity) -> list[Counted]:
    runs: dict[tuple[object, ...], list[Counted]] = defaultdict(list)
    for one in members:
        runs[_run(one)].append(one)
    if len(runs) < 2:
        return []
    smallest = min(runs.values(), key=lambda readings: _size(readings[0]))
    rest = [one for readings in runs.values() if readings is not smallest for one in readings]
    model = _model(smallest[0])
    if quantity == "memory":
        factors = _memory_correction(smallest).factors
        return [
            _corrected(one, transferred(factors, same_model=_model(one) == model, same_variant=True)) for one in rest
        ]
    scenario = _scenario(smallest[0])
    shares = time_shares(scenario)

    def factor(one: Counted) -> float:
        return shared_factor(
            1.0 / smallest[0].ratio,
            shares,
            time_shares(_scenario(one)),
            same_model=_model(one) == model,
            fitted=not scenario.stack.is_guess,
        )

    return [_rescaled(one, one.ratio * factor(one)) for one in rest]


def _scenario(one: Counted) -> Scenario:
    assert one.compared.trial is not None
    return one.compared.trial.scenario


def _model(one: Counted) -> str:
    assert one.compared.trial is not None
    return one.compared.trial.model


def _run(one: Counted) -> tuple[object, ...]:
    measurement, trial = one.compared.measurement, one.compared.trial
    assert measurement is not None and trial is not None
    return run_key(measurement, trial)


def _size(one: Counted) -> tuple[float, ...]:
    """Parameters, then samples x length of a micro-batch: the run that one would choose to try a stack with."""
    trial = one.compared.trial
    assert trial is not None
    scenario = trial.scenario
    batch = mean_batch(scenario)
    return scenario.ledger.arch.num_params, batch.seq_len, batch.samples, scenario.cluster.num_gpus


def _memory_correction(readings: Sequence[Counted]) -> MemoryCorrection:
    prediction = readings[0].compared.prediction
    assert prediction is not None and prediction.memory is not None
    estimate = prediction.memory
    ratios = {one.reading: one.ratio for one in readings}  # of repeated readings the mean

    def measured(reading: ReadingName) -> float | None:
        return memory_in(estimate, reading) / ratios[reading] if reading in ratios else None

    return correct(
        estimate,
        Reading(
            allocated_bytes=measured("allocated"),
            reserved_bytes=measured("reserved"),
            process_bytes=measured("process"),
        ),
    )


def _corrected(one: Counted, factors: Mapping[str, float]) -> Counted:
    """`one` with the parts of its estimate corrected, in the quantity that was read."""
    prediction = one.compared.prediction
    assert prediction is not None and prediction.memory is not None
    reading = cast(ReadingName, one.reading)
    before = memory_in(prediction.memory, reading)
    after = memory_in(corrected(prediction.memory, factors), reading)
    return _rescaled(one, one.ratio * after / before if before else one.ratio)


def _rescaled(one: Counted, ratio: float) -> Counted:
    return replace(one, ratio=ratio, error=abs(ratio - 1.0))
