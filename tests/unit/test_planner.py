"""The planner on small cases: pins are honoured, limits reject with reason and fix, nothing infeasible raises."""

from dataclasses import replace
from pathlib import Path

import pytest

from planning import KCELECTRA, LLAMA_8B, TINY, comments_job, lm_job, one_gpu, plan_of, prices
from stoker.catalogue.gpus import all_devices
from stoker.core.errors import ModelError, PlanningError
from stoker.core.estimate import Source
from stoker.core.hardware import Cluster, Device, Host
from stoker.core.io import read_job
from stoker.core.job import GoalSpec, NvmeSpec, ParallelSpec, RunPins
from stoker.core.plan_io import plan_from_json, plan_to_json
from stoker.planner import constraints, explain
from stoker.planner.gather import plan_job
from stoker.techniques.runnable import require_runnable


def cpu() -> Cluster:
    device = Device(
        name="test CPU",
        kind="cpu",
        vendor="test",
        architecture="x86_64",
        compute_capability=None,
        sold_bytes=16 * 10**9,
        visible_bytes=15 * 10**9,
        memory_bytes_per_s=20e9,
        peak_flops_per_s={"fp32": 2e11},
        interconnect="none",
        link_bytes_per_s=0.0,
        pcie_bytes_per_s=0.0,
        source=Source.MEASURED,
    )
    return Cluster(device=device, num_gpus=1, host=Host(num_cores=2))


def test_everything_pinned_gives_exactly_one_candidate_also_when_it_does_not_fit() -> None:
    run = RunPins(precision="bf16", micro_batch_size=1, recompute="none", loss="eager", attention="sdpa")
    plan = plan_of(lm_job(gpus=["L4"], num_gpus=1, run=run), LLAMA_8B)
    assert len(plan.candidates) == 1
    candidate = plan.candidates[0]
    assert not candidate.fits
    assert candidate.memory.fit_probability < 0.01
    assert plan.pick is None
    assert plan.rejected[0].code == "ST320"
    assert "lora" in plan.rejected[0].fix or "fsdp" in plan.rejected[0].fix
    config = candidate.run_config
    assert (config.precision, config.micro_batch_size, config.recompute, config.loss) == ("bf16", 1, "none", "eager")


def test_nothing_fits_is_a_plan_without_a_pick() -> None:
    plan = plan_of(lm_job(gpus=["L4", "T4"], batch=8, max_gpus=2), LLAMA_8B, prices=prices())
    assert plan.pick is None and plan.candidates == ()
    assert {r.code for r in plan.rejected} == {"ST320"}
    assert all(r.reason and r.fix for r in plan.rejected)
    assert plan.summary


def test_precision_follows_the_compute_capability() -> None:
    chosen = {
        gpu: plan_of(comments_job(gpus=[gpu], num_gpus=1), KCELECTRA).candidates[0].run_config.precision
        for gpu in ("T4", "V100-SXM2-16GB", "L4", "A100-SXM4-40GB")
    }
    assert chosen == {"T4": "fp16_amp", "V100-SXM2-16GB": "fp16_amp", "L4": "bf16_amp", "A100-SXM4-40GB": "bf16_amp"}
    assert plan_of(lm_job(gpus=["H100-SXM5-80GB"], num_gpus=1), TINY).candidates[0].run_config.precision == "bf16"


def test_a_pinned_format_that_the_gpu_lacks_is_rejected() -> None:
    plan = plan_of(comments_job(gpus=["T4"], num_gpus=1, run=RunPins(precision="bf16_amp")), KCELECTRA)
    assert plan.candidates == ()
    assert plan.rejected[0].code == "ST322"
    plan = plan_of(comments_job(gpus=["T4"], num_gpus=1, run=RunPins(attention="flash")), KCELECTRA)
    assert plan.rejected[0].code == "ST322"


@pytest.mark.parametrize("device", all_devices(), ids=lambda device: device.name)
def test_every_gpu_of_the_table_gets_a_plan_or_a_reason(device: Device) -> None:
    """One product has no published peak: no time, so a rejection, never a crash and never a sister's figure."""
    plan = plan_of(comments_job(gpus=[device.name], num_gpus=1), KCELECTRA)
    if device.peak_flops_per_s:
        assert len(plan.candidates) == 1 and plan.candidates[0].time.step_s > 0.0
    else:
        assert plan.candidates == () and plan.rejected[0].code == "ST333"


@pytest.mark.parametrize(
    ("pins", "method", "num_gpus"),
    [
        (RunPins(packing="packed"), "full", 1),
        (RunPins(capture="compile"), "full", 1),
    ],
)
def test_what_is_not_offered_yet_says_so(pins: RunPins, method: str, num_gpus: int) -> None:
    plan = plan_of(lm_job(gpus=["L4"], num_gpus=num_gpus, batch=8, run=pins, method=method), TINY)
    assert plan.candidates == ()
    assert [r.code for r in plan.rejected] == ["ST323"]


def test_case_6_qlora_says_that_experts_stay_wide() -> None:
    """Qwen3-30B-A3B: 48 blocks x 128 experts x 3 matrices of 2,048 x 768 = 28.99 of 30.53 G parameters, 58.0 GB."""
    config = {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
    }
    plan = plan_of(lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, batch=8, method="qlora"), config)
    said = [note for note in plan.notes if "NOT quantised" in note]
    assert len(said) == 1 and "29.0 B of 30.5 B" in said[0] and "58.0 GB" in said[0]
    assert not any("no adapters on" in note for note in plan.notes)  # all of its blocks hold experts
    dense = plan_of(
        lm_job(gpus=["B200-SXM-180GB"], num_gpus=1, batch=8, method="lora"), config | {"mlp_only_layers": [0]}
    )
    assert any(note.startswith("no adapters on gate_proj, up_proj, down_proj:") for note in dense.notes)
    assert plan.candidates[0].memory.terms["params"] > 2 * 48 * 128 * 3 * 2048 * 768
    for other, shape in (("lora", config), ("qlora", TINY)):
        notes = plan_of(lm_job(gpus=["H200-SXM-141GB"], num_gpus=1, batch=8, method=other), shape).notes
        assert not any("NOT quantised" in note for note in notes)


def test_muon_is_not_planned_under_fsdp() -> None:
    pinned = RunPins(parallel=ParallelSpec(dp_shard=2))
    job = lm_job(gpus=["H100-SXM5-80GB"], num_gpus=2, batch=8)
    muon = replace(job, train=replace(job.train, optimizer="muon"))
    assert [r.code for r in plan_of(replace(muon, run=pinned), TINY).rejected] == ["ST332"]
    assert plan_of(replace(job, run=pinned), TINY).candidates[0].run_config.parallel.dp_shard == 2
    assert plan_of(muon, TINY).candidates[0].run_config.parallel.dp_replicate == 2


def test_4_bit_weights_are_priced_and_their_package_is_named() -> None:
    qlora, lora = (
        plan_of(lm_job(gpus=["L4"], num_gpus=1, batch=8, method=method), LLAMA_8B) for method in ("qlora", "lora")
    )
    assert any("bitsandbytes" in note for note in qlora.notes)
    assert not any("bitsandbytes" in note for note in lora.notes)
    less = lora.candidates[0].memory.terms["params"] - qlora.candidates[0].memory.terms["params"]
    # 6.98 G parameters in blocks, 2 bytes against 0.5625
    assert less == pytest.approx(32 * 218_103_808 * (2.0 - 0.5625), rel=0.001)


@pytest.mark.parametrize(
    ("degrees", "num_gpus", "label"),
    [
        (ParallelSpec(tp=2), 2, "tp2"),
        (ParallelSpec(pp=2), 2, "pp2"),
        (ParallelSpec(pp=2, virtual_stages=2), 2, "pp2+vp2"),
        (ParallelSpec(cp=2), 2, "fsdp+cp2"),
        (ParallelSpec(dp_replicate=2, dp_shard=2), 4, "hsdp"),
        (ParallelSpec(dp_shard=2, tp=2), 4, "fsdp+tp2"),
        (ParallelSpec(dp_shard=2, zero_stage=1), 2, "zero1"),
        (ParallelSpec(dp_replicate=2, kind="data_parallel"), 2, "data_parallel"),
        (ParallelSpec(pp=2, kind="layer_split"), 2, "layer_split"),
    ],
)
def test_pinned_strategies_are_priced_and_marked_as_planned(degrees: ParallelSpec, num_gpus: int, label: str) -> None:
    run = RunPins(parallel=degrees)
    plan = plan_of(lm_job(gpus=["A100-SXM4-80GB"], num_gpus=num_gpus, batch=8, run=run), TINY)
    (candidate,) = plan.candidates
    assert plan.rejected == () and candidate.fits
    assert candidate.run_config.parallel.label == label
    assert "stoker run" in candidate.planned_only
    assert any(candidate.planned_only in note for note in plan.notes)
    with pytest.raises(PlanningError, match="ST382"):
        require_runnable(candidate.run_config)


def test_what_run_can_run_is_not_marked() -> None:
    plan = plan_of(lm_job(gpus=["A100-SXM4-80GB"], batch=8), TINY)
    assert {c.run_config.parallel.label for c in plan.candidates} <= {"single", "ddp", "fsdp"}
    assert not any(c.planned_only or c.schedule for c in plan.candidates)
    for candidate in plan.candidates:
        require_runnable(candidate.run_config)


@pytest.mark.parametrize(
    ("degrees", "num_gpus", "reason"),
    [
        (ParallelSpec(tp=8), 8, "4 attention heads"),
        (ParallelSpec(pp=8), 8, "4 layers"),
        (ParallelSpec(dp_shard=2, ep=2), 2, "no experts"),
    ],
)
def test_degrees_that_do_not_cut_the_model_are_rejected(degrees: ParallelSpec, num_gpus: int, reason: str) -> None:
    run = RunPins(parallel=degrees)
    plan = plan_of(lm_job(gpus=["A100-SXM4-80GB"], num_gpus=num_gpus, batch=8, run=run), TINY)
    assert plan.candidates == ()
    assert [r.code for r in plan.rejected] == ["ST331"] and reason in plan.rejected[0].reason


def test_tensor_parallel_stays_within_fast_links() -> None:
    run = RunPins(parallel=ParallelSpec(tp=16))
    plan = plan_of(lm_job(gpus=["H100-SXM5-80GB"], num_gpus=16, nodes=2, batch=8, run=run), LLAMA_8B)
    assert [r.code for r in plan.rejected] == ["ST331"] and "8 GPUs" in plan.rejected[0].reason


def test_tiers_let_a_small_gpu_tune_what_does_not_fit_and_say_what_it_costs() -> None:
    """8 B with AdamW: 16 bytes a parameter are 128 GB; an L4 has 24. State moves out first, weights last."""
    run = RunPins(placement="tiers", recompute="full")
    job = lm_job(gpus=["L4"], num_gpus=1, batch=4, run=run, dram_gb=200)
    plan = plan_of(job, LLAMA_8B)
    (candidate,) = plan.candidates
    assert candidate.fits and candidate.planned_only == ""
    require_runnable(candidate.run_config)
    assert candidate.schedule is not None
    assert candidate.memory.tiers["hbm"] == candidate.memory.expected_bytes < 24e9
    state = 8_030_261_248 * 10  # moments, and the low halves of the masters
    assert state < candidate.memory.tiers["dram"] < 200e9
    assert candidate.time.step_terms["exposed_transfer"] > 0.0
    read = plan_from_json(plan_to_json(plan))
    assert read.candidates[0].schedule == candidate.schedule


def test_tiers_beyond_the_host_go_to_flash_or_are_rejected() -> None:
    run = RunPins(placement="tiers", recompute="full")
    small = lm_job(gpus=["L4"], num_gpus=1, batch=4, run=run, dram_gb=64)
    assert "ST330" in {r.code for r in plan_of(small, LLAMA_8B).rejected}
    flash = lm_job(gpus=["L4"], num_gpus=1, batch=4, run=run, dram_gb=64, nvme=NvmeSpec(dir="tiers", gb=200))
    (candidate,) = plan_of(flash, LLAMA_8B).candidates
    assert candidate.memory.tiers["dram"] < 64e9 and candidate.memory.tiers["nvme"] > 0


def test_flash_that_is_named_but_not_used_is_said() -> None:
    job = lm_job(gpus=["A100-SXM4-80GB"], num_gpus=1, batch=4, nvme=NvmeSpec(dir="tiers", gb=200))
    plan = plan_of(job, TINY)
    assert plan.picked is not None and any("hardware.nvme" in note for note in plan.notes)


def test_the_single_gpu_is_shown_or_said_where_it_fits() -> None:
    alone = plan_of(lm_job(gpus=["A100-SXM4-80GB"], batch=8, max_gpus=8), TINY)
    assert 1 in {c.cluster.num_gpus for c in alone.candidates}
    pinned = plan_of(lm_job(gpus=["A100-SXM4-80GB"], num_gpus=8, batch=8), TINY)
    assert any("one A100-SXM4-80GB would do too" in note for note in pinned.notes)
    large = plan_of(lm_job(gpus=["A100-SXM4-80GB"], num_gpus=8, batch=8), LLAMA_8B)
    assert not any("would do too" in note for note in large.notes)


def test_nodes_use_the_network_of_the_offer() -> None:
    """GCP's a2 machines have 100 Gb/s for eight GPUs, the vendor's own machine sixteen times that."""
    job = lm_job(gpus=["A100-SXM4-40GB"], num_gpus=16, nodes=2, batch=32, tokens=512, providers=["gcp"])
    unpriced, priced = plan_of(job, LLAMA_8B), plan_of(job, LLAMA_8B, prices=prices())
    assert priced.candidates[0].cost is not None
    assert priced.candidates[0].cluster.inter_node_bytes_per_s == 12.5e9
    slower = [plan.candidates[0].time.step_terms["exposed_comm"] for plan in (unpriced, priced)]
    assert slower[1] > 3 * slower[0]


def test_pinned_degrees_leave_one_count_and_one_strategy() -> None:
    run = RunPins(parallel=ParallelSpec(dp_shard=4))
    plan = plan_of(lm_job(gpus=["A100-SXM4-80GB"], batch=8, run=run), TINY)
    assert [c.cluster.num_gpus for c in plan.candidates] == [4]
    assert plan.candidates[0].run_config.parallel.label == "fsdp"
    assert {r.code for r in plan.rejected} == {"ST324"}


def test_deadline_and_budget_reject_with_the_number_that_would_do() -> None:
    goal = GoalSpec(deadline_hours=0.1)
    plan = plan_of(comments_job(gpus=["L4"], num_gpus=1, goal=goal), KCELECTRA, prices=prices())
    assert plan.pick is None
    assert [r.code for r in plan.rejected] == ["ST325"]
    plan = plan_of(comments_job(gpus=["L4"], num_gpus=1, goal=GoalSpec(budget_usd=0.01)), KCELECTRA, prices=prices())
    assert [r.code for r in plan.rejected] == ["ST326"]


def test_a_goal_that_nothing_meets_says_how_near_it_comes() -> None:
    """The nearest miss leads, before what does not fit at all; no claim that nothing fits."""
    gpus = ["L4", "A100-SXM4-80GB", "H100-SXM5-80GB"]
    late = plan_of(lm_job(gpus=gpus, batch=64, goal=GoalSpec(deadline_hours=0.01)), LLAMA_8B, prices=prices())
    fastest = min((c for c in late.candidates if c.fits), key=lambda c: c.time.total_s)
    assert late.pick is None and fastest.cluster.label in late.summary and "$" in late.summary
    assert late.rejected[0].code == "ST325" and late.rejected[0].gpu == fastest.cluster.device.name
    dear = plan_of(lm_job(gpus=gpus, batch=64, goal=GoalSpec(budget_usd=0.01)), LLAMA_8B, prices=prices())
    cheapest = min((c for c in dear.candidates if c.cost), key=lambda c: c.cost.total_usd if c.cost else 0.0)
    assert dear.rejected[0].code == "ST326" and dear.rejected[0].num_gpus == cheapest.cluster.num_gpus
    assert "ST320" in {item.code for item in dear.rejected}


def test_a_suggested_goal_would_hold_and_is_near() -> None:
    for value in (0.0123, 0.62, 1.0, 9.96, 123.4, 99_501.0):
        assert value <= constraints._rounded_up(value) <= 1.1 * value


def test_equal_is_not_told_as_a_factor_of_one() -> None:
    assert explain._ratio(1.004, "dearer", "cheaper") == "" == explain._ratio(0.996, "dearer", "cheaper")
    assert explain._ratio(1.5, "dearer", "cheaper") == "1.50 times dearer"
    assert explain._ratio(0.5, "dearer", "cheaper") == "2.00 times cheaper"


def test_an_order_that_the_cost_column_does_not_show_is_explained() -> None:
    plan = plan_of(comments_job(gpus=["L4", "A100-SXM4-40GB", "H100-SXM5-80GB"]), KCELECTRA, prices=prices())
    costs = [round(c.cost.total_usd, 2) for c in plan.candidates if c.cost]
    told = any("stale prices are ranked" in note for note in plan.notes)
    assert told == (costs != sorted(costs))


def test_unknown_and_ambiguous_gpu_names_are_bad_input() -> None:
    for name in ("H100", "GTX-9999"):
        with pytest.raises(PlanningError) as error:
            plan_of(comments_job(gpus=[name]), KCELECTRA)
        assert error.value.code == "ST301"


def test_a_provider_or_region_without_offers_is_bad_input_not_a_plan_without_prices() -> None:
    for key, name, near in (("providers", "gcpp", "gcp"), ("regions", "koreacentrall", "koreacentral")):
        job = comments_job(gpus=["L4"], num_gpus=1)
        job = replace(job, hardware=replace(job.hardware, **{key: [name]}))
        with pytest.raises(PlanningError) as error:
            plan_of(job, KCELECTRA, prices=prices())
        assert (error.value.code, error.value.place) == ("ST303", f"hardware.{key}")
        assert near in error.value.fix
    job = replace(job, hardware=replace(job.hardware, providers=["GCP"], regions="any"))
    cost = plan_of(job, KCELECTRA, prices=prices()).candidates[0].cost
    assert cost is not None and cost.provider == "gcp"


def test_more_gpus_than_this_machine_has_are_refused() -> None:
    for here, has in ((replace(one_gpu("L4"), num_gpus=2), 2), (cpu(), 0)):
        job = comments_job(gpus=[], num_gpus=4)
        job = replace(job, hardware=replace(job.hardware, gpus=None, here=True))
        plan = plan_of(job, KCELECTRA, here=here)
        assert not plan.candidates and [r.code for r in plan.rejected] == ["ST324"]
        assert f"has {has} GPUs" in plan.rejected[0].reason


def test_memory_cap_counts_as_what_is_visible() -> None:
    free = plan_of(comments_job(gpus=["L4"], num_gpus=1), KCELECTRA).candidates[0]
    job = comments_job(gpus=["L4"], num_gpus=1)
    capped = plan_of(replace(job, hardware=replace(job.hardware, hbm_gb=4.0)), KCELECTRA).candidates[0]
    assert capped.memory.visible_bytes == 4 * 10**9 < free.memory.visible_bytes
    assert capped.memory.expected_bytes <= 4 * 10**9
    assert capped.run_config.micro_batch_size < free.run_config.micro_batch_size or (
        capped.run_config.recompute == "full"
    )


def test_here_has_no_price_no_boot_and_plans_a_cpu_in_fp32() -> None:
    job = comments_job(gpus=[])
    job = replace(job, hardware=replace(job.hardware, gpus=None, here=True))
    plan = plan_of(job, KCELECTRA, here=cpu())
    assert len(plan.candidates) == 1
    candidate = plan.candidates[0]
    assert candidate.cost is None and candidate.run_config.precision == "fp32"
    assert candidate.time.total_terms["boot"] == 0.0 == candidate.time.total_terms["download"]
    assert plan.pick == 1


def test_stale_prices_never_rank_first() -> None:
    """Case 44: a stale row is shown beside the others, and cannot be the cheapest."""
    plan = plan_of(comments_job(gpus=["H100-SXM5-80GB"], num_gpus=1), KCELECTRA, prices=prices())
    candidate = plan.candidates[0]
    assert candidate.cost is not None
    if any("stale" not in offer.source for offer in candidate.offers):
        assert "stale" not in candidate.cost.source


def test_all_counts_of_a_type_share_one_remedy_and_the_smaller_gpu_is_named() -> None:
    plan = plan_of(lm_job(gpus=["L4", "H200-SXM-141GB"], batch=64), LLAMA_8B, prices=prices())
    assert plan.picked is not None
    assert "L4" in plan.smaller_gpu
    assert one_gpu("L4").device.name == "L4"


def test_a_model_without_blocks_is_never_planned_with_recompute(tmp_path: Path) -> None:
    """The engine cannot recompute a convolutional network, so neither a pick nor a remedy may lean on it."""
    file = tmp_path / "job.yaml"
    job = "{model: resnet-50, task: image_classification, data: {num_samples: 500, label_names: [a, b]}, "
    file.write_text(job + "hardware: {gpus: [L4], num_gpus: 1, hbm_gb: 0.6}}", encoding="utf-8")
    plan = plan_job(read_job(file))
    assert plan.candidates[0].run_config.recompute == "none" and "recompute" not in plan.smaller_gpu
    with pytest.raises(ModelError, match="ST280"):
        plan_job(read_job(file, ["run.recompute=full"]))


def test_image_batches_get_workers_and_no_buckets() -> None:
    from planning import TODAY
    from stoker.catalogue.efficiency import load_efficiency
    from stoker.catalogue.models.api import arch_from_config
    from stoker.core.job import DataSpec, HardwareSpec, Job, TrainSpec
    from stoker.core.plan import ResolvedModel
    from stoker.core.profile import DataProfile, lengths_constant
    from stoker.planner.api import make_plan

    config = {
        "model_type": "vit",
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "image_size": 224,
        "patch_size": 16,
        "num_channels": 3,
    }
    job = Job(
        model="vit",
        task="image_classification",
        data=DataSpec(num_samples=10_000),
        train=TrainSpec(global_batch_size=64),
        hardware=HardwareSpec(gpus=["L4"], num_gpus=1),
    )
    arch = arch_from_config(config, task="image_classification", num_labels=10, name="vit")
    profile = DataProfile(num_samples=10_000, lengths=lengths_constant(arch.tokens_per_sample or 1))
    plan = make_plan(
        job, profile, ResolvedModel(name="vit", config=config), arch, None, load_efficiency(), here=None, today=TODAY
    )
    config_of = plan.candidates[0].run_config
    assert config_of.workers > 0 and config_of.packing == "none"
    assert plan.candidates[0].memory.terms["activations"] > 0
