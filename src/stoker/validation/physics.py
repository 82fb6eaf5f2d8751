"""Rows that no hardware can have run: a model cut into more parts than it has, or model FLOPs of the stated batch in
the measured time beyond the dense peak.

The tables' own authors mark such rows suspect; a row of a table that nobody checked gets the same test here. Counted
are the FLOPs that the model needs (no recomputation unless the table states it) against the highest peak of a format
that the precision could mean, so only what is impossible is caught (docs/math.md, "Scores").
"""

from typing import Final

from stoker.estimators.scenario import Scenario
from stoker.estimators.utilisation import model_flops_per_step
from stoker.techniques.parallel import parallel
from stoker.validation.predict import units_per_rate, units_per_second, work_per_gpu
from stoker.validation.trial import Trial

_FORMATS: Final = {"fp4": ("fp4", "fp8"), "fp8": ("fp8",), "tf32": ("tf32",), "fp32": ("fp32", "tf32")}
_WINOGRAD: Final = 36.0 / 16.0  # Lavin and Gray, 1509.09308: 16 multiplications where 36 are counted
_MARGIN: Final = 1.05  # of the peak: boards boost, and the last tokens of a batch may be padding


def impossible(trial: Trial) -> str:
    """Why the stated cut or the measured time cannot be, or ""."""
    degrees = trial.scenario.config.parallel
    uncut = parallel(degrees).problem(trial.scenario.ledger.arch, degrees)
    if uncut:
        return f"suspect: {uncut}"
    seconds = _measured_step_s(trial)
    if seconds is None:
        return ""
    peak = _highest_peak(trial.scenario)
    if not peak:
        return ""
    share = _flops(trial.scenario) / seconds / peak / _saved_by_winograd(trial.scenario)
    if share <= _MARGIN:
        return ""
    return f"suspect: the stated work in the measured time takes {share:.3g} of the dense peak"


def _measured_step_s(trial: Trial) -> float | None:
    """Seconds of an optimizer step that the row states; None for other quantities."""
    measurement, scenario = trial.measurement, trial.scenario
    if measurement.metric in ("tokens_per_s_per_gpu", "samples_per_s_per_gpu"):
        scale = units_per_rate(measurement.unit, scenario.config.parallel.world_size)
        return scale * work_per_gpu(scenario, in_tokens=measurement.metric.startswith("tokens")) / measurement.value
    if measurement.metric != "step_time_s":
        return None
    per_micro_batch = "micro-batch" in measurement.unit.split("(")[0]
    seconds = measurement.value / units_per_second(measurement.unit)
    return seconds * (scenario.config.gradient_accumulation_steps if per_micro_batch else 1)


def _flops(scenario: Scenario) -> float:
    """Model FLOPs of a step on one GPU, and one more forward where the table states full recomputation."""
    again = 4.0 / 3.0 if scenario.config.recompute == "full" and scenario.ledger.num_adapter_params == 0 else 1.0
    return model_flops_per_step(scenario) * again


def _saved_by_winograd(scenario: Scenario) -> float:
    """How many FLOPs one multiplication of a 3 x 3 convolution may stand for: F(2x2, 3x3) of cuDNN, in fp32."""
    is_image = any(group.kind == "conv" for group in scenario.ledger.groups)
    return _WINOGRAD if is_image and scenario.ledger.compute_bytes > 2.0 else 1.0


def _highest_peak(scenario: Scenario) -> float:
    """Dense FLOP/s of the fastest format that the run's products could be in; 0 where the device has none."""
    peaks = scenario.cluster.device.peak_flops_per_s
    formats = {
        scenario.products,
        scenario.ledger.compute_dtype,
        *(group.matmul_dtype or "" for group in scenario.ledger.groups),
    }
    wanted = {name for one in formats if one for name in _FORMATS.get(one, (one, "fp16", "bf16"))}
    return max((peaks[name] for name in wanted if name in peaks), default=0.0)
