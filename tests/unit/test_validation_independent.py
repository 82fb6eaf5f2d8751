"""Sources that nothing was fitted on: what their tables say is read, and the facts that they taught hold.

The figures are the sources' own (data/measurements_independent_time.csv names table and commit).
"""

from dataclasses import replace
from typing import Any

import pytest

from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.gpus import all_devices
from stoker.catalogue.measurements import all_measurements, independent_measurements
from stoker.core.measurement import Measurement
from stoker.estimators.compute_rates import rates_of
from stoker.estimators.compute_units import UnitCosts
from stoker.estimators.scenario import Batch
from stoker.validation.physics import impossible
from stoker.validation.predict import Prediction, predict
from stoker.validation.trial import Trial, build_trial

EFFICIENCY = replace(load_efficiency(), corrections=())


def trial_of(**columns: Any) -> Trial:
    values: dict[str, Any] = {
        "source": "some blog",
        "table": "table",
        "value": 1.0,
        "unit": "",
        "method": "full",
        "precision": "bf16",
        "num_gpus": 1,
        "strategy": "single",
        **columns,
    }
    trial = build_trial(Measurement(**values), EFFICIENCY)
    assert isinstance(trial, Trial), trial
    return trial


def test_independent_sources_are_none_of_those_that_constants_are_fitted_on() -> None:
    rows = independent_measurements()
    fitted = {row.source for row in all_measurements()}
    assert {row.role for row in rows} == {"holdout"}
    assert not fitted & {row.source for row in rows}
    speeds = [row for row in rows if row.metric in ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s_per_gpu")]
    assert len({row.source for row in speeds}) >= 10
    assert len({row.gpu for row in speeds}) >= 12


@pytest.mark.parametrize(("micro", "measured"), [(4, 2748.9), (8, 2880.88)])
def test_attention_beside_quantised_weights_runs_in_16_bits(micro: int, measured: float) -> None:
    """Mistral-7B, QLoRA over 4,096 tokens on an A100 (fms-acceleration): fp32 attention made it half as fast."""
    trial = trial_of(
        model="mistralai/Mistral-7B-v0.1",
        metric="tokens_per_s_per_gpu",
        method="qlora",
        precision="nf4 fp16 amp",
        gpu="A100-80GB",
        micro_batch_size=micro,
        seq_len=4096,
        recompute="full",
        attention="flash_attn 2",
        note="r=16 targets=['q_proj','k_proj','v_proj','o_proj']",
    )
    found = predict(trial)
    assert isinstance(found, Prediction)
    assert found.expected == pytest.approx(measured, rel=0.2)


def test_channels_first_images_pay_six_passes_over_what_convolutions_read_and_write() -> None:
    """Forward two, backward four (input and weight gradients); channels_last none. ResNet-50 keeps about both."""
    row = {"model": "resnet50", "metric": "samples_per_s_per_gpu", "gpu": "A100-80GB-SXM", "precision": "fp16 amp"}
    batch = Batch(tokens=256.0, samples=256.0, seq_len=1.0)
    seconds = []
    for note in ("img_size=224", "img_size=224; channels_last"):
        scenario = trial_of(**row, unit="img/s/gpu", micro_batch_size=256, note=note).scenario
        costs = UnitCosts.of(scenario, batch)
        units = [unit for unit in scenario.sums.units if unit.map_flops]
        seconds.append(sum(u.repeats * (costs.forward_s(u) + costs.backward_s(u)) for u in units))
    bandwidth = rates_of(EFFICIENCY, scenario.cluster.device, "fp16").memory
    per_image = (seconds[0] - seconds[1]) * bandwidth / 256
    assert per_image == pytest.approx(6 * 2 * 21.5e6, rel=0.25)  # 16-bit elements that autograd keeps (image_facts.csv)


def test_fp32_convolutions_beyond_the_peak_are_possible_by_winograd() -> None:
    """VGG-16, 16 images in 83.5 ms on a V100 (u39kun): 1.13 of the peak by counted FLOPs, half of it by real ones."""
    row = {"model": "vgg16", "metric": "step_time_s", "unit": "s", "gpu": "V100-16GB-SXM2", "micro_batch_size": 16}
    assert not impossible(trial_of(**row, value=0.0835, precision="fp32", note="img_size=224"))
    assert "suspect" in impossible(trial_of(**row, value=0.03, precision="fp32", note="img_size=224"))


def test_a_rate_without_batch_or_gpus_is_read_with_usual_ones_and_a_wider_interval() -> None:
    """OLMo-core states tokens/s of one H100 under FSDP at 4,096 tokens, and neither batch nor number of GPUs."""
    trial = trial_of(
        model="allenai/OLMo-2-1124-7B",
        metric="tokens_per_s_per_gpu",
        gpu="H100-80GB-SXM",
        num_gpus=None,
        strategy="fsdp",
        seq_len=4096,
        recompute="full",
    )
    assert trial.scenario.config.micro_batch_size * 4096 == 16384
    assert trial.scenario.cluster.num_gpus == 8
    assert {"micro-batch size", "number of GPUs"} <= set(trial.widened)


@pytest.mark.parametrize(
    ("metric", "unit", "times"),
    [
        ("step_time_s", "ms per iteration", 1000.0),
        ("step_time_s", "minutes", 1 / 60),
        ("step_time_s", "s", 1.0),
        ("tokens_per_s_per_gpu", "tok/s (total)", 8.0),
        ("tokens_per_s_per_gpu", "ktok/s/gpu", 1e-3),
        ("tokens_per_s_per_gpu", "tok/s/gpu, not the total", 1.0),
    ],
)
def test_a_prediction_is_in_the_unit_of_its_row(metric: str, unit: str, times: float) -> None:
    row = {"model": "llama-2-7b", "gpu": "H100-80GB-SXM", "num_gpus": 8, "strategy": "fsdp", "micro_batch_size": 1}
    usual = "s" if metric == "step_time_s" else "tok/s/gpu"
    found, plain = (predict(trial_of(**row, seq_len=2048, metric=metric, unit=words)) for words in (unit, usual))
    assert isinstance(found, Prediction)
    assert isinstance(plain, Prediction)
    assert found.expected == pytest.approx(plain.expected * times)
    assert found.high == pytest.approx(plain.high * times)


def test_every_cuda_product_has_shares_of_its_own_generation() -> None:
    """GTX 1080 Ti (6.1) and GB10 (12.1) were priced as an unknown family: half of the peak."""
    cuda = [device for device in all_devices() if device.compute_capability]
    assert len(cuda) > 90
    for device in cuda:
        assert EFFICIENCY.speed(device, "fp16").family != "*", device.name
