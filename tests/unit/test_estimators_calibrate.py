"""calibrate: a run's measured step and memory become factors that the next plan of that stack applies, and only it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from planning import TINY, lm_job, plan_of
from stoker.catalogue.efficiency import load_efficiency, read_corrections, write_corrections
from stoker.core.codec import dumps
from stoker.core.efficiency import Correction, CorrectionKey, Efficiency
from stoker.core.estimate import Source
from stoker.core.plan import Plan
from stoker.core.plan_io import plan_to_json
from stoker.core.record import RunRecord, StepLine
from stoker.estimators.calibrate import calibrate, corrections, mean_step_s


def clean() -> Efficiency:
    return replace(load_efficiency(), corrections=())


def a_plan(efficiency: Efficiency | None = None, gpu: str = "L4") -> Plan:
    return plan_of(lm_job(gpus=[gpu], num_gpus=1, batch=4, tokens=512), TINY, efficiency=efficiency or clean())


def lines(seconds: Sequence[float], reserved: int | None) -> tuple[StepLine, ...]:
    elapsed, result = 20.0, []
    for number, step_s in enumerate(seconds, 1):
        elapsed += step_s
        result.append(
            StepLine(
                step=number, epoch=0.1, loss=1.0, lr=1e-4, grad_norm=1.0, samples=4, tokens=2048, padded_tokens=2048,
                elapsed_s=elapsed, step_s=step_s, data_wait_s=0.0, allocated_bytes=reserved, reserved_bytes=reserved,
            )
        )  # fmt: skip
    return tuple(result)


def a_record(plan: Plan, *, time: float, memory: float, kind: str = "cuda", device: str = "NVIDIA L4") -> RunRecord:
    candidate = plan.candidates[0]
    reserved = round(memory * candidate.memory.expected_bytes) - candidate.memory.terms["framework"]
    step_s = time * candidate.time.step_s
    return RunRecord(
        path="run",
        header={
            "plan": json.loads(dumps(plan_to_json(plan))),
            "hardware": {"kind": kind, "device": device},
            "versions": {"torch": "2.13.0", "transformers": "5.24.0"},
        },
        steps=lines([9.0, 3.0, *[step_s] * 10], reserved),
        evals=(),
        saves=(),
        events=(),
        end={"status": "finished", "peak_reserved_bytes": reserved},
    )


def test_the_next_plan_of_the_stack_is_what_the_run_measured() -> None:
    before = a_plan()
    efficiency = calibrate([a_record(before, time=1.7, memory=1.2)], clean(), date="2026-11-30")
    after = a_plan(efficiency).candidates[0]
    assert after.time.step_s == pytest.approx(1.7 * before.candidates[0].time.step_s, rel=0.01)
    assert after.memory.expected_bytes == pytest.approx(1.2 * before.candidates[0].memory.expected_bytes, rel=0.01)
    assert after.memory.source is Source.CALIBRATED and after.time.source is Source.CALIBRATED
    assert after.memory.high_bytes / after.memory.expected_bytes < 1.1


def test_a_second_calibration_does_not_multiply_the_first() -> None:
    """The corrected plan was right: its run measures what it said, and the factor stays."""
    first = calibrate([a_record(a_plan(), time=1.7, memory=1.2)], clean())
    again = calibrate([a_record(a_plan(first), time=1.0, memory=1.0)], first)
    assert again.corrections[0].time_factor == pytest.approx(1.7, rel=0.01)
    assert again.corrections[0].memory_factor == pytest.approx(1.2, rel=0.01)
    assert len(again.corrections) == 1


def test_other_devices_and_methods_are_not_touched() -> None:
    efficiency = calibrate([a_record(a_plan(), time=1.7, memory=1.2)], clean())
    assert a_plan(efficiency, gpu="A100-SXM4-40GB") == a_plan(gpu="A100-SXM4-40GB")
    lora = lm_job(gpus=["L4"], num_gpus=1, batch=4, tokens=512, method="lora")
    assert plan_of(lora, TINY, efficiency=efficiency) == plan_of(lora, TINY)


def test_a_run_on_another_device_than_planned_tells_nothing() -> None:
    plan = a_plan()
    assert corrections([a_record(plan, time=1.7, memory=1.2, kind="cpu", device="x86_64")]) == ()
    assert corrections([a_record(plan, time=1.7, memory=1.2, device="NVIDIA H100 80GB HBM3")]) == ()
    assert corrections([replace(a_record(plan, time=1.7, memory=1.2), header={})]) == ()


def test_warm_up_and_a_slept_machine_do_not_count() -> None:
    assert mean_step_s(lines([9.0, 3.0, 1.0, 1.0, 2.0, 100.0], None)) == pytest.approx(4.0 / 3.0)
    assert mean_step_s(lines([9.0, 3.0], None)) is None


def test_corrections_survive_the_file_and_a_broken_file_is_ignored(tmp_path: Path) -> None:
    found = corrections([a_record(a_plan(), time=1.7, memory=1.2)], date="2026-11-30")
    path = write_corrections(found, tmp_path / "deep" / "efficiency.json")
    assert read_corrections(path) == found
    newer = tuple(replace(c, time_factor=1.5) for c in found)
    write_corrections(newer, path)
    assert read_corrections(path) == newer
    assert [p.name for p in path.parent.iterdir()] == ["efficiency.json"]
    assert load_efficiency(path).corrections == newer
    path.write_text("{torn", encoding="utf-8")
    assert read_corrections(path) == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, value) for field in ("time_factor", "memory_factor") for value in (0.0, -1.0, 1e-308, 1e308, None)),
        *(("start_s", value) for value in (-1.0, 1e308, "soon")),
        *(("memory_parts", value) for value in ({"activations": -1.0}, {"activations": 1e300}, None)),
    ],
)
def test_a_correction_that_no_run_can_have_left_is_passed_over_and_the_others_hold(
    tmp_path: Path, field: str, value: object
) -> None:
    """It would make times or sizes of a plan zero, negative or endless; and its neighbours are not lost with it."""
    (found,) = corrections([a_record(a_plan(), time=1.7, memory=1.2)], date="2026-11-30")
    other = replace(found, key=replace(found.key, model_family="other"))
    path = write_corrections([found, other], tmp_path / "efficiency.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    document["corrections"][0][field] = value
    path.write_text(json.dumps(document), encoding="utf-8")
    assert read_corrections(path) == (other,)


def test_a_correction_holds_for_models_of_its_own_size_only() -> None:
    """A factor of one BERT is not applied to another size of the family, nor to one whose embeddings are frozen."""
    key = CorrectionKey(
        device="cpu",
        model_family="bert",
        precision="fp32",
        method="full",
        num_params=22_700_000,
        num_trainable=22_700_000,
    )
    learnt = Correction(
        key=replace(key, stack="torch-2.13.0"), time_factor=1.5, memory_factor=1.2, num_runs=1, date="2026-11-30"
    )
    efficiency = replace(load_efficiency(), corrections=(learnt,))
    assert efficiency.correction(key) is learnt  # another stack of the same model: better than nothing
    assert efficiency.correction(replace(key, num_params=117_500_000)) is None
    assert efficiency.correction(replace(key, num_trainable=12_000_000)) is None


def test_what_comes_and_goes_carries_over_to_another_model_of_the_stack_on_a_gpu_and_state_does_not() -> None:
    """The small model's run reserved 1.6 times its prediction; one twice as wide takes the share, not the factor."""
    efficiency = calibrate([a_record(a_plan(), time=1.7, memory=1.6)], clean())
    wide = {**TINY, "hidden_size": 512, "intermediate_size": 1376}
    job = lm_job(gpus=["L4"], num_gpus=1, batch=4, tokens=512)
    before = plan_of(job, wide, efficiency=clean()).candidates[0]
    after = plan_of(job, wide, efficiency=efficiency).candidates[0]
    assert after.time.step_s == before.time.step_s  # time is not carried over
    assert after.memory.terms["params"] < 1.1 * before.memory.terms["params"]
    assert after.memory.terms["activations"] > 1.2 * before.memory.terms["activations"]
    assert sum(after.memory.terms.values()) == after.memory.expected_bytes
    assert after.memory.source is before.memory.source  # not measured on this model
    again = calibrate([a_record(plan_of(job, wide, efficiency=efficiency), time=1.0, memory=1.0)], clean())
    factor = after.memory.expected_bytes / before.memory.expected_bytes
    assert again.corrections[0].memory_factor == pytest.approx(factor, rel=0.01)  # of the formulas, not of itself


def test_another_loss_kernel_is_another_stack() -> None:
    efficiency = calibrate([a_record(a_plan(), time=1.7, memory=1.2)], clean())
    key = efficiency.corrections[0].key
    assert efficiency.correction(replace(key, stack="", loss="chunked" if key.loss == "eager" else "eager")) is None
    old = replace(efficiency.corrections[0], key=replace(key, loss="", attention=""))
    assert replace(efficiency, corrections=(old,)).correction(replace(key, stack="")) is old


def test_memory_of_the_stack_comes_from_a_run_of_the_same_variant_first() -> None:
    """An older run that recomputes as the plan does tells more than a newer one that does not."""
    (found,) = calibrate([a_record(a_plan(), time=1.7, memory=1.6)], clean()).corrections
    assert found.memory_variant == a_plan().candidates[0].run_config.variant
    assert "fixed_bytes" not in found.memory_parts  # bytes are no factor: a file with them would not be believed
    newer = replace(
        found,
        key=replace(found.key, num_params=1),
        memory_variant="fsdp bf16 full eager sdpa none hbm",
        date="2027-01-01",
    )
    efficiency = replace(clean(), corrections=(found, newer))
    assert efficiency.memory_correction(found.key, found.memory_variant) is found
    assert efficiency.memory_correction(found.key, newer.memory_variant) is newer
    assert efficiency.memory_correction(found.key, "another") is newer
    assert efficiency.memory_correction(replace(found.key, device="H100"), found.memory_variant) is None
