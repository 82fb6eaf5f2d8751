"""A traced peak is what autograd, loss and optimizer hold; what cannot be traced is a gap with its reason."""

from dataclasses import replace

import pytest

from planning import KCELECTRA, TINY, comments_job, lm_job, plan_of
from stoker.core.estimate import Source
from stoker.core.job import RunPins
from stoker.core.plan import Plan
from stoker.engine import trace_estimate
from stoker.engine.trace_estimate import TracedPeak, TraceGap, trace_here, trace_memory
from stoker.estimators.traced import traced_estimate
from stoker.planner.breakdown import evaluator_of

TOKENS = 2 * 512


def _plan(method: str = "full", precision: str = "fp32", **pins: object) -> Plan:
    run = RunPins(micro_batch_size=2, precision=precision, attention="sdpa", **{"loss": "eager", **pins})  # type: ignore[arg-type]
    return plan_of(lm_job(gpus=["L4"], num_gpus=1, batch=2, tokens=512, method=method, run=run), TINY)


def _traced(plan: Plan, samples: int = 2) -> TracedPeak:
    return trace_here(plan, plan.candidates[0], samples=samples, seq_len=512)


def test_state_of_full_tuning_is_exact() -> None:
    """fp32 AdamW: 4 bytes a parameter of weights, 8 of moments (ZeRO, 1910.02054), and the terms are the peak."""
    plan = _plan()
    traced = _traced(plan)
    assert traced.terms["params"] == pytest.approx(4 * plan.num_params, rel=1e-3)  # rotary tables beside them
    assert traced.terms["optimizer_states"] == pytest.approx(8 * plan.num_params, rel=1e-3)
    assert sum(traced.terms.values()) == traced.peak_allocated_bytes


def test_bf16_holds_masters_beside_narrow_weights() -> None:
    """2 + 4 + 8 bytes a parameter: weights, fp32 masters, moments."""
    plan = _plan(precision="bf16")
    traced = _traced(plan)
    assert traced.terms["params"] == pytest.approx(2 * plan.num_params, rel=1e-3)
    assert traced.terms["optimizer_states"] == pytest.approx(8 * plan.num_params, rel=1e-3)
    assert traced.terms["masters"] == pytest.approx(4 * plan.num_params, rel=0.01)  # the micro-batch stands there too


def test_lora_has_state_for_adapters_only() -> None:
    """Frozen parameters, which torch's own tracker cannot meet, are counted and get neither gradient nor moments."""
    plan = _plan(method="lora")
    traced = _traced(plan)
    assert traced.terms["params"] == pytest.approx(4 * (plan.num_params + plan.num_trainable_params), rel=1e-3)
    assert traced.terms["optimizer_states"] == pytest.approx(8 * plan.num_trainable_params, rel=0.01)


def test_the_eager_loss_peaks_at_three_fp32_tensors_of_logits() -> None:
    """12 bytes a logit (measured on an H200: benchmarks/records, losses); under recompute little else lives then."""
    plan = _plan(precision="bf16", recompute="full")
    traced = _traced(plan)
    logits = 12 * TOKENS * TINY["vocab_size"]
    kept = 2 * TOKENS * TINY["hidden_size"] * TINY["num_hidden_layers"]
    dynamic = traced.terms["activations"] + traced.terms["temp_buffers"]
    assert dynamic == pytest.approx(logits + kept, rel=0.15)


def test_the_chunked_loss_is_traced_as_it_runs() -> None:
    """Its token selection depends on data, and it recognises sharded heads by type: neither stops a trace."""
    eager = _traced(_plan(precision="bf16", recompute="full"))
    chunked = _traced(_plan(precision="bf16", recompute="full", loss="chunked"))
    assert chunked.peak_allocated_bytes < eager.peak_allocated_bytes


def test_accumulation_holds_fp32_sums() -> None:
    """4 bytes a 16-bit parameter between micro-batches (techniques/precision/accumulate)."""
    job = lm_job(
        gpus=["L4"],
        num_gpus=1,
        batch=8,
        tokens=512,
        run=RunPins(micro_batch_size=2, precision="bf16", attention="sdpa", loss="eager"),
    )
    plan = plan_of(job, TINY)
    assert _traced(plan).terms["grads"] >= 4 * plan.num_params


def test_an_encoder_with_attention_dropout_keeps_no_scores() -> None:
    """KcELECTRA, 4 x 512, fp32. Per token and layer, in multiples of 768 elements: block input, q, k, v, attention out,
    norm in and out, 4 + 4 of the MLP, norm in: 16 of 4 bytes, and two dropout masks of one byte, as on a GPU.
    Scores would add 12 x 12 x 4 x 512 x 512 x 4 = 604 MB a copy, and three copies were kept."""
    run = RunPins(micro_batch_size=4, precision="fp32", attention="sdpa")
    plan = plan_of(comments_job(gpus=["L4"], num_gpus=1, run=run), KCELECTRA)
    result = _traced(plan, samples=4)
    assert result.terms["params"] == pytest.approx(4 * plan.num_params, rel=0.01)
    assert result.terms["activations"] == pytest.approx((16 * 4 + 2) * 768 * 2048 * 12, rel=0.08)


def test_a_process_of_its_own_gives_the_same_trace() -> None:
    plan = _plan(method="lora")
    assert trace_memory(plan, plan.candidates[0], samples=2, seq_len=512) == _traced(plan)


def test_what_a_trace_cannot_see_comes_from_the_analytic_estimate() -> None:
    plan = _plan()
    candidate = plan.candidates[0]
    scenario = evaluator_of(plan, trace_free_efficiency()).scenario(candidate.cluster, candidate.run_config)
    terms = {"params": 100, "optimizer_states": 200, "masters": 50, "activations": 3_000_000_000, "temp_buffers": 7}
    traced = traced_estimate(scenario, candidate.memory, terms)
    assert traced.source is Source.TRACED
    assert traced.terms["framework"] == candidate.memory.terms["framework"]
    assert traced.terms["optimizer_states"] == 250
    assert sum(traced.terms.values()) == traced.expected_bytes
    assert traced.low_bytes < traced.expected_bytes < traced.high_bytes


def trace_free_efficiency():  # type: ignore[no-untyped-def]
    """The table that ships, without corrections of this machine."""
    from stoker.catalogue.efficiency import load_efficiency

    return replace(load_efficiency(), corrections=())


def test_quantised_and_sharded_runs_are_gaps() -> None:
    plan = _plan(method="lora")
    quantised = replace(plan, job=replace(plan.job, tune=replace(plan.job.tune, method="qlora")))
    assert isinstance(trace_memory(quantised, quantised.candidates[0], samples=1, seq_len=8), TraceGap)
    candidate = plan.candidates[0]
    parallel = replace(candidate.run_config.parallel, dp_shard=2)
    sharded = replace(candidate, run_config=replace(candidate.run_config, parallel=parallel))
    assert isinstance(trace_memory(plan, sharded, samples=1, seq_len=8), TraceGap)


def test_model_code_that_breaks_is_a_gap_in_its_own_words() -> None:
    plan = _plan()
    config = {**plan.model.config, "num_attention_heads": 3}  # does not divide the width: the model cannot be built
    broken = replace(plan, model=replace(plan.model, config=config))
    result = trace_memory(broken, broken.candidates[0], samples=1, seq_len=8)
    assert isinstance(result, TraceGap)
    assert "Error" in result.reason


def test_a_trace_that_takes_too_long_is_a_gap() -> None:
    plan = _plan()
    result = trace_memory(plan, plan.candidates[0], samples=1, seq_len=8, timeout_s=0.01)
    assert isinstance(result, TraceGap)


def test_without_torch_the_gap_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_estimate, "find_spec", lambda name: None)
    plan = _plan()
    result = trace_memory(plan, plan.candidates[0], samples=1, seq_len=8)
    assert isinstance(result, TraceGap)
    assert "torch" in result.reason
