"""`plan --explain`: terms are those of the estimate and follow from their inputs; levers are what a new plan would say.

Nothing here repeats a formula of the estimators: products of the shown inputs are compared with the shown values, and
levers with plans that were made with the change in the job.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from planning import KCELECTRA, LLAMA_8B, arch_of, comments_job, lm_job, plan_of
from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.gpus import all_devices, find_device
from stoker.cli.main import main
from stoker.core.efficiency import Efficiency
from stoker.core.explanation import ExplainedTerm, Explanation, Input
from stoker.core.io import read_job
from stoker.core.job import Job, ParallelSpec, RunPins
from stoker.core.plan import Plan
from stoker.core.plan_io import plan_from_json, plan_to_json
from stoker.core.units import GIB
from stoker.core.utilisation import share_of_peak
from stoker.estimators.utilisation import name_peak
from stoker.planner.breakdown import explain_plan
from stoker.planner.gather import plan_job
from stoker.report.explain_text import explanation_text
from stoker.report.plan_text import plan_text

PINNED = RunPins(precision="bf16", recompute="none", loss="eager", micro_batch_size=2)


def clean() -> Efficiency:
    return replace(load_efficiency(), corrections=())


def explained(job: Job, config: Mapping[str, Any] = LLAMA_8B) -> tuple[Plan, Explanation]:
    plan = plan_of(job, config, efficiency=clean())
    found = explain_plan(plan, clean())
    assert found is not None
    return plan, found


def value(term: ExplainedTerm, symbol: str) -> float:
    found = next(item for item in term.inputs if item.symbol == symbol)
    assert isinstance(found.value, (int, float))
    return float(found.value)


def h200(run: RunPins = PINNED, method: str = "full") -> Job:
    return lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, batch=4, tokens=1024, run=run, method=method)


@pytest.mark.parametrize("job", [h200(), h200(method="lora"), comments_job(gpus=["L4"], num_gpus=2)])
def test_every_term_of_the_pick_is_explained_with_its_value(job: Job) -> None:
    plan, found = explained(job, KCELECTRA if job.task == "text_classification" else LLAMA_8B)
    candidate = plan.picked or plan.candidates[0]
    for part, terms in (
        (found.memory, candidate.memory.terms),
        (found.phases, candidate.memory.phases),
        (found.step, candidate.time.step_terms),
        (found.total, candidate.time.total_terms),
    ):
        assert {term.name: term.value for term in part} == {name: v for name, v in terms.items() if v}
        assert [term.name for term in part if not term.formula or not term.words or not term.inputs] == []
    assert sum(term.value for term in found.memory) == candidate.memory.expected_bytes
    assert [phase.name for phase in found.phases] == ["load", "forward", "backward", "optimizer", "evaluation", "save"]


def test_state_follows_from_the_inputs_that_are_shown() -> None:
    """16 bytes a parameter of bf16 full tuning: 8,030,261,248 x (2 + 2 + 4 + 8), and 4 more for sums in fp32."""
    _plan, found = explained(h200())
    terms = {term.name: term for term in found.memory}
    params, grads, states = terms["params"], terms["grads"], terms["optimizer_states"]
    assert value(params, "N") == 8_030_261_248
    assert params.value == value(params, "N") * value(params, "w")
    assert states.value == value(states, "N_t") * (value(states, "m") + value(states, "o"))
    assert grads.value == value(grads, "N_t") * (value(grads, "q") + 4 * (value(grads, "g") > 1))
    logits = terms["logits"]
    assert logits.value == pytest.approx(value(logits, "rows") * value(logits, "V") * value(logits, "B"))
    assert (value(logits, "rows"), value(logits, "V")) == (2048, 128_256)


@pytest.mark.parametrize(("kernel", "rows"), [("eager", 8192), ("chunked", 1024)])
def test_case_1_every_copy_of_the_logits_is_shown(kernel: str, rows: int) -> None:
    """8,192 x 128,256: 1.96 GiB in bf16, 3.91 of fp32 copy, 3.91 of fp32 gradient; an eighth in chunks of 1,024."""
    run = replace(PINNED, micro_batch_size=1, loss=kernel)
    found = explained(lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, batch=1, tokens=8192, run=run))[1]
    term = next(term for term in found.memory if term.name == "logits")
    sizes = [value(term, name) / GIB for name in ("logits", "fp32_copy", "fp32_gradient")]
    assert sizes == pytest.approx([rows / 8192 * gib for gib in (1.957, 3.914, 3.914)], rel=1e-3)


def test_under_tensor_and_pipeline_parallel_the_terms_are_of_the_rank_itself() -> None:
    """A quarter of Llama 3.1 8B, its few norms apart; 2 bytes of gradient, 4 of master and 8 of moments each."""
    run = replace(PINNED, micro_batch_size=1, parallel=ParallelSpec(tp=2, pp=2))
    job = lm_job(gpus=["H100-SXM5-80GB"], num_gpus=4, batch=16, tokens=1024, run=run)
    _plan, found = explained(job)
    terms = {term.name: term for term in found.memory}
    grads, states = terms["grads"], terms["optimizer_states"]
    assert value(grads, "N_t") == value(states, "N_t") == pytest.approx(8_030_261_248 / 4, rel=1e-3)
    assert (value(grads, "q"), value(states, "m"), value(states, "o")) == (2, 4, 8)
    assert states.value == value(states, "N_t") * (4 + 8)


def test_activations_follow_from_the_inputs_that_are_shown() -> None:
    _plan, found = explained(h200())
    term = next(term for term in found.memory if term.name == "activations")

    def kept(item: Input) -> float:
        count = float(item.meaning.split(" x ")[0])
        return count * float(item.value)

    per_token = sum(kept(item) for item in term.inputs if item.unit == "bytes_per_token")
    assert term.value == pytest.approx(value(term, "T") * per_token, rel=1e-6)


def test_sources_are_told_and_a_sum_takes_the_weakest() -> None:
    _plan, found = explained(h200())
    sources = {term.name: term.source for term in (*found.memory, *found.step, *found.total)}
    assert sources["params"] == "analytic" and sources["compute"] == "vendor_spec" and sources["boot"] == "assumed"
    assert found.sources["memory"] in ("analytic", "assumed")


@pytest.mark.parametrize("name", ["loss", "recompute", "optimizer", "seq_len", "lora"])
def test_a_lever_is_what_a_plan_with_that_change_says(name: str) -> None:
    from stoker.planner.breakdown import evaluator_of
    from stoker.planner.levers import find_levers

    job = h200()
    plan = plan_of(job, LLAMA_8B, efficiency=clean())
    before = plan.candidates[0]
    levers = {lever.name: lever for lever in find_levers(evaluator_of(plan, clean()), before, shown=20)}
    lever = levers[name]
    changed = job
    for key, text in lever.change.items():
        section, field = key.split(".")
        entry: Any = {section: replace(getattr(changed, section), **{field: int(text) if text.isdigit() else text})}
        changed = replace(changed, **entry)
    after = plan_of(changed, LLAMA_8B, efficiency=clean()).candidates[0]
    assert lever.expected_bytes == after.memory.expected_bytes
    assert lever.saved_bytes == before.memory.expected_bytes - after.memory.expected_bytes > 0
    assert lever.step_s == pytest.approx(after.time.step_s)
    assert lever.slower_frac == pytest.approx(after.time.step_s / before.time.step_s - 1.0)
    assert lever.changes_learning is (name not in ("loss", "recompute"))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("pins", [{}, {"micro_batch_size": 4}, {"placement": "tiers"}])
@pytest.mark.parametrize("method", ["full", "lora"])
def test_every_lever_can_be_written_into_the_job_and_planned(
    tmp_path: Path, optimizer: str, pins: dict[str, Any], method: str
) -> None:
    """Among them: Muon has no sharded lever (ST332), more GPUs than max_gpus say so, a frozen part goes with LoRA."""
    from stoker.planner.breakdown import evaluator_of
    from stoker.planner.levers import find_levers

    document: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "task": "causal_lm",
        "data": {"num_samples": 1000, "tokens_mean": 300, "tokens_p99": 1500, "tokens_max": 2000},
        "tune": {"method": method, "freeze": ["embed_tokens"] if method == "full" else []},
        "train": {"global_batch_size": 4, "seq_len": 2048, "optimizer": optimizer},
        "hardware": {"gpus": ["A100-SXM4-80GB"], "num_gpus": 1, "max_gpus": 1},
        "run": pins,
    }
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    plan = plan_job(read_job(file), efficiency=clean())
    levers = find_levers(evaluator_of(plan, clean()), plan.candidates[0], shown=20)
    names = {lever.name for lever in levers}
    assert len(levers) >= 3 and ("shards" in names) == (optimizer != "muon")
    for lever in levers:
        changed = plan_job(read_job(file, [f"{key}={text}" for key, text in lever.change.items()]), efficiency=clean())
        assert len(changed.candidates) == 1, (lever.change, changed.rejected)
        assert changed.candidates[0].fits or not lever.fits, lever.change


def test_recompute_has_a_price_and_keeps_the_learning_curve() -> None:
    """One more forward of every block: 8 N T instead of 6 N T, a third more at most."""
    run = replace(PINNED, micro_batch_size=4)
    _plan, found = explained(h200(run, method="lora"))
    lever = next(lever for lever in found.levers if lever.name == "recompute")
    assert 0.15 < lever.slower_frac < 0.55 and not lever.changes_learning and lever.num_gpus == 1
    assert len(found.levers) == 3
    assert [lever.saved_bytes for lever in found.levers] == sorted((x.saved_bytes for x in found.levers), reverse=True)


def test_where_nothing_fits_the_plan_itself_shows_the_way_out() -> None:
    job = lm_job(gpus=["A100-SXM4-80GB"], num_gpus=1, batch=8, tokens=2048)
    plan = plan_of(job, LLAMA_8B, efficiency=clean())
    assert plan.pick is None and plan.levers and plan.levers[0].fits
    assert "1 x A100-SXM4-80GB" in plan.levers_for
    text = plan_text(plan)
    assert "the way out" in text and "dp_shard" in text
    assert plan_from_json(plan_to_json(plan)) == plan
    fitting = plan_of(h200(method="lora"), LLAMA_8B, efficiency=clean())
    assert fitting.levers == () and "the way out" not in plan_text(fitting)


def test_a_plan_written_before_levers_can_still_be_read() -> None:
    data = plan_to_json(plan_of(h200(), LLAMA_8B, efficiency=clean()))
    del data["levers"], data["levers_for"]
    assert plan_from_json(data).levers == ()


def test_case_3_lora_that_needs_more_is_said() -> None:
    """Few parameters, many tokens: an adapter on every linear keeps more than full tuning does."""
    from stoker.planner.breakdown import evaluator_of
    from stoker.planner.levers import adapter_note

    job = h200()
    plan = plan_of(job, LLAMA_8B, efficiency=clean())
    assert adapter_note(evaluator_of(plan, clean()), plan.candidates[0]) == ""  # 8 B: LoRA saves 14 bytes a parameter
    tiny = {**LLAMA_8B, "num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 256, "vocab_size": 512}
    tiny |= {"num_attention_heads": 4, "num_key_value_heads": 4}
    long = lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, batch=64, tokens=4096, run=replace(PINNED, micro_batch_size=64))
    small = plan_of(long, tiny, efficiency=clean())
    assert "lora is worse here" in adapter_note(evaluator_of(small, clean()), small.candidates[0])


def test_case_37_420_tflops_on_an_h200_is_42_percent() -> None:
    share, problem = share_of_peak(420e12, find_device("H200-SXM-141GB"), "bf16")
    assert share == pytest.approx(0.424, abs=5e-4) and problem == ""


def test_case_37_over_the_peak_is_an_error_that_names_the_likely_peak() -> None:
    share, problem = share_of_peak(1.04 * 989.5e12, find_device("H100-SXM5-80GB"), "bf16")
    assert share is None and "104%" in problem and "fp8" in problem and "wrong peak" in problem
    assert any(name == "A100-SXM4-80GB bf16 dense" for name in name_peak(312e12, all_devices()))
    assert "stoker explain 989.5TFLOPS" in problem
    assert "H200-SXM-141GB bf16 with sparsity" in name_peak(1979e12, all_devices())


def test_case_37_the_command_says_whose_peak_a_figure_is(capsys: pytest.CaptureFixture[str]) -> None:
    """312 is an A100's dense bf16, and int8's dense peak halved once too often; 624 is the same with sparsity."""

    def peaks(figure: str) -> list[str]:
        with pytest.raises(SystemExit) as left:
            main(["explain", figure, "--json"])
        assert left.value.code == 0
        return list(json.loads(capsys.readouterr().out)["peak_of"])

    assert {"A100-SXM4-80GB bf16 dense", "A100-SXM4-80GB int8 halved twice"} <= set(peaks("312TFLOPS"))
    assert "A100-SXM4-80GB bf16 with sparsity" in peaks("624 TFLOP/s")
    assert peaks("3.3TFLOPS") == []


@pytest.mark.parametrize(
    ("figure", "gpu", "share"),
    [
        ("420TFLOPS", "H200-SXM-141GB", 0.424),  # 21.2 % of the peak with sparsity, 84.9 % of TF32's
        ("324.48TFLOPS", "H100-SXM5-80GB", 0.328),  # shown as 104 % of 312
        ("156TFLOPS", "A100-SXM4-80GB", 0.5),
        ("1029TFLOPS", "H100-SXM5-80GB", None),
    ],
)
def test_case_37_the_command_divides_by_the_dense_peak(
    figure: str, gpu: str, share: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["explain", figure, "--gpu", gpu, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert left.value.code == (0 if share else 2)
    assert answer["mfu_frac"] == (pytest.approx(share, abs=5e-4) if share else None)
    assert bool(answer["problem"]) == (share is None)


def test_cases_33_and_35_host_memory_and_the_update_outside_the_gpu_have_their_lines() -> None:
    """What lies in DRAM by kind, what torch's allocator would round it to, and 30 bytes a parameter of a CPU update."""
    run = RunPins(precision="bf16", recompute="full", loss="eager", micro_batch_size=1, placement="tiers")
    found = explained(lm_job(gpus=["RTX4090"], num_gpus=1, batch=1, tokens=8192, run=run))[1]
    (dram,) = found.tiers
    kinds = ("weights", "gradients", "state", "activations")
    assert dram.name == "dram" and dram.value == sum(value(dram, kind) for kind in kinds)
    # a block of 218,112,000: 436 MB in 512 MiB twice, 10 bytes (2.18 GB) in 4 GiB; 525,336,576: 1 GiB twice, 8 GiB
    blocks, ends = 32 * (2 * 512 + 4096), 2 * (2 * 1024 + 8192)
    assert value(dram, "pinned") >= (blocks + ends) * 2**20
    assert value(dram, "pinned") == pytest.approx((blocks + ends + 32 * 64) * 2**20, rel=0.02)
    assert "host memory" in explanation_text(found)
    small = {**LLAMA_8B, "num_hidden_layers": 4}
    on_cpu = lm_job(gpus=["T4"], num_gpus=1, batch=1, tokens=512, run=replace(run, precision="fp16_amp"))
    step = {term.name: term for term in explained(on_cpu, small)[1].step}["exposed_transfer"]
    bound = value(step, "N_c") * 30 / value(step, "tier_dram_bytes_per_s")
    assert value(step, "c") == 30 and value(step, "update") == pytest.approx(bound)


def test_mfu_of_a_plan_is_its_model_flops_over_time_and_peak() -> None:
    """6 N T without recompute and without the embedding's look-up; attention on top: 2 micro-batches of 2 x 1,024."""
    plan, found = explained(h200())
    time = plan.candidates[0].time
    matrices = 8_030_261_248 - 128_256 * 4096
    assert time.model_flops == pytest.approx(6 * matrices * 4 * 1024, rel=0.05)
    assert found.mfu_frac == pytest.approx(time.model_flops / time.step_s / 989.5e12)
    again = explained(h200(replace(PINNED, recompute="full")))[0].candidates[0].time
    assert again.model_flops == pytest.approx(time.model_flops)  # recomputation is not the model's work


def test_case_45_the_same_utilisation_takes_the_ratio_of_the_peaks() -> None:
    sxm, pcie = find_device("H100-SXM5-80GB"), find_device("H100-PCIe-80GB")
    on_sxm, _ = share_of_peak(300e12, sxm, "bf16")
    on_pcie, _ = share_of_peak(300e12 / 1.309, pcie, "bf16")
    assert on_sxm == pytest.approx(on_pcie, rel=1e-3)


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_text_shows_formula_inputs_and_sources(language: str) -> None:
    from stoker.core.i18n import set_language

    _plan, found = explained(h200())
    set_language(language)
    try:
        text = explanation_text(found)
    finally:
        set_language("en")
    assert "N_t (m + o) / shards" in text and "8,030,261,248" in text and "MFU" in text
    assert len(found.levers) == 3 and [key for lever in found.levers for key in lever.change if key not in text] == []


def test_an_image_model_is_explained_too() -> None:
    from stoker.core.job import DataSpec, HardwareSpec, TrainSpec

    config = {"model_type": "resnet", "depths": [3, 4, 6, 3], "hidden_sizes": [256, 512, 1024, 2048]}
    job = Job(
        model="model",
        task="image_classification",
        data=DataSpec(labels="label", num_samples=1000, tokens_mean=1, tokens_p99=1, tokens_max=1),
        train=TrainSpec(global_batch_size=32),
        hardware=HardwareSpec(gpus=["T4"], num_gpus=1),
    )
    assert arch_of(job, config).modality == "image"
    _plan, found = explained(job, config)
    assert {"params", "activations"} <= {term.name for term in found.memory}
