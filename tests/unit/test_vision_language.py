"""Vision-language models are planned, with wider intervals, and never run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planning import TODAY, lm_job
from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.models.api import resolve_model
from stoker.catalogue.models.lookup import named
from stoker.core.errors import ModelError, PlanningError
from stoker.core.estimate import Source
from stoker.core.job import Job, RunPins
from stoker.core.plan import Plan
from stoker.core.plan_io import plan_from_json, plan_to_json
from stoker.estimators.widening import widened_spread, widening
from stoker.planner.breakdown import explain_plan
from stoker.planner.gather import plan_job
from stoker.techniques.runnable import require_runnable

QWEN_VL = "Qwen/Qwen2.5-VL-7B-Instruct"
QWEN = "Qwen/Qwen2.5-7B-Instruct"
ONE_WAY = RunPins(precision="bf16", micro_batch_size=1, recompute="none", loss="eager", attention="sdpa")
# As published in each model's config.json (keys that leave the shape alone left out)
QWEN_VL_CONFIG: dict[str, Any] = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
    "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584},
}
LLAVA_CONFIG: dict[str, Any] = {
    "model_type": "llava",
    "text_config": {"model_type": "llama", "vocab_size": 32064},
    "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "image_size": 336},
}
GEMMA_CONFIG: dict[str, Any] = {
    "model_type": "gemma3",
    "mm_tokens_per_image": 256,
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "image_size": 896},
}


@pytest.fixture(autouse=True)
def _no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def job_of(model: str, **keys: Any) -> Job:
    return replace(lm_job(gpus=["H100-SXM5-80GB"], num_gpus=1, method="lora", run=ONE_WAY, **keys), model=model)


def planned(model: str, **keys: Any) -> Plan:
    return plan_job(job_of(model, **keys), today=TODAY, efficiency=replace(load_efficiency(), corrections=()))


def test_qwen_vl_is_its_language_model_and_the_tower_with_a_wider_interval() -> None:
    """8.29 B as its model card says: 7.616 B of Qwen2.5-7B, and 0.677 B of tower and merger."""
    seeing, blind = planned(QWEN_VL), planned(QWEN)
    assert seeing.num_params == 7_615_616_512 + 676_550_144
    assert seeing.num_trainable_params == blind.num_trainable_params  # adapters on the language model, tower frozen
    ours, theirs = seeing.candidates[0], blind.candidates[0]
    assert ours.memory.terms["params"] - theirs.memory.terms["params"] == 2 * 676_550_144  # frozen, in bf16
    ratio = ours.memory.high_bytes / ours.memory.expected_bytes
    plain_ratio = theirs.memory.high_bytes / theirs.memory.expected_bytes
    assert ratio == pytest.approx(1.25 * plain_ratio, rel=0.02)  # 25 %: what validate adds for a generic shape
    assert ours.time.high_s / ours.time.total_s > 1.2 * theirs.time.high_s / theirs.time.total_s
    assert ours.memory.source is ours.time.source is Source.ASSUMED
    assert theirs.memory.source is not Source.ASSUMED
    assert any("1024 tokens" in note and "676.6 M" in note for note in seeing.notes)


def test_full_tuning_trains_the_tower_too() -> None:
    job = replace(lm_job(gpus=["H100-SXM5-80GB"], num_gpus=1, run=ONE_WAY), model=QWEN_VL)
    plan = plan_job(job, today=TODAY, efficiency=load_efficiency())
    assert plan.num_trainable_params == plan.num_params == 8_292_166_656


def test_run_refuses_it_before_anything_starts() -> None:
    plan = plan_from_json(plan_to_json(planned(QWEN_VL)))  # as `stoker run PLAN.json` reads it
    assert "vision-language" in plan.candidates[0].planned_only
    with pytest.raises(PlanningError, match="ST382") as caught:
        require_runnable(plan.candidates[0].run_config, plan.model)
    assert "text" in caught.value.fix
    text = planned(QWEN)
    require_runnable(text.candidates[0].run_config, text.model)


def test_a_plan_of_it_can_be_explained() -> None:
    assert explain_plan(planned(QWEN_VL), load_efficiency()) is not None


@pytest.mark.parametrize(
    ("name", "billions", "tokens"),
    [
        ("Qwen/Qwen2.5-VL-3B-Instruct", 3.75, 1024),
        ("Qwen/Qwen2-VL-72B-Instruct", 73.4, 1024),
        ("qwen2.5-vl-7b", 8.29, 1024),
        ("llava-hf/llava-1.5-7b-hf", 7.06, 576),
        ("llava-1.6-7b", 7.57, 2880),
        ("google/gemma-3-4b-it", 4.30, 256),
        ("google/paligemma-3b-pt-224", 2.92, 256),
        ("OpenGVLab/InternVL2-8B", 8.08, 256),
    ],
)
def test_names_and_sizes_of_the_hub(name: str, billions: float, tokens: int) -> None:
    """Sizes: the parameter counts that the hub shows beside each model."""
    model, arch = resolve_model(job_of(name))
    assert arch.num_params / 1e9 == pytest.approx(billions, rel=0.01)
    assert arch.is_approximate and model.is_approximate
    assert f"{tokens} tokens" in model.notes[0]


@pytest.mark.parametrize(
    ("config", "name", "tokens"),
    [
        (QWEN_VL_CONFIG, QWEN_VL, 1024),
        (LLAVA_CONFIG, "llava-1.5-7b", 576),  # (336 / 14)^2
        (GEMMA_CONFIG, "gemma-3-4b", 256),
    ],
)
def test_a_config_of_ones_own_counts_as_the_table_does(
    config: dict[str, Any], name: str, tokens: int, tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    model, arch = resolve_model(job_of(str(file)))
    assert arch.num_params == resolve_model(job_of(name))[1].num_params
    assert arch.is_approximate and f"{tokens} tokens" in model.notes[0]


def test_a_wrong_tower_names_its_key(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    wrong = {**LLAVA_CONFIG, "vision_config": {**LLAVA_CONFIG["vision_config"], "hidden_size": -1}}
    file.write_text(json.dumps(wrong), encoding="utf-8")
    with pytest.raises(ModelError, match="ST205") as caught:
        resolve_model(job_of(str(file)))
    assert "hidden_size" in caught.value.place


def test_a_misspelt_name_is_refused_with_its_neighbours() -> None:
    with pytest.raises(ModelError, match="ST201") as caught:
        resolve_model(job_of("Qwen/Qwen2.5-VL-7B-Instrukt"))
    assert QWEN_VL in caught.value.fix


def test_bundled_names_never_read_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> None:
        raise AssertionError("published.json was read")

    monkeypatch.setattr(named, "_table", read)
    assert resolve_model(job_of(QWEN))[1].num_params == 7_615_616_512
    with pytest.raises(AssertionError, match="published"):
        resolve_model(job_of(QWEN_VL))


def test_the_widening_is_a_quarter_for_each_assumption_in_quadrature() -> None:
    assert (widening(0), widening(1), widening(4)) == (1.0, 1.25, 1.5)
    assert widened_spread(0.2, 1.0) == 0.2
    assert widened_spread(0.2, 1.25) == pytest.approx(0.5)
