"""A plan and run records for the report tests, made with the real types; numbers are round, not measured."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stoker.core.codec import dumps, encode
from stoker.core.comparison import Elsewhere
from stoker.core.estimate import CostEstimate, MemoryEstimate, Source, TimeEstimate
from stoker.core.hardware import Cluster, Device
from stoker.core.job import DataSpec, GoalSpec, Job, TrainSpec
from stoker.core.plan import Candidate, Plan, Rejection, ResolvedModel
from stoker.core.plan_io import plan_to_json
from stoker.core.profile import DataProfile, lengths_declared
from stoker.core.record import EvalLine, EventLine, SaveLine, StepLine
from stoker.core.run_config import RunConfig

DEVICE = Device(
    name="L4",
    kind="cuda",
    vendor="NVIDIA",
    architecture="Ada",
    compute_capability=(8, 9),
    sold_bytes=24 * 10**9,
    visible_bytes=23_600_000_000,
    memory_bytes_per_s=300e9,
    peak_flops_per_s={"fp32": 30e12, "bf16": 121e12},
    interconnect="pcie",
    link_bytes_per_s=16e9,
    pcie_bytes_per_s=25e9,
)
JOB = Job(
    model="klue-bert-base",
    task="text_classification",
    problem="multi_label",
    data=DataSpec(train="comments.csv", text="text", labels=["abuse", "clean"]),
    train=TrainSpec(global_batch_size=64),
)
NUM_STEPS = 100


def cost_of(usd: float, provider: str = "gcp") -> CostEstimate:
    return CostEstimate(
        total_usd=usd,
        low_usd=usd * 0.8,
        high_usd=usd * 1.3,
        lines={"gpu": usd},
        usd_per_hour=0.71,
        provider=provider,
        instance="g2-standard-4",
        region="us-central1",
        price_kind="on_demand",
        as_of="2026-10-01",
        source="price list",
    )


def candidate(rank: int = 1, gpus: int = 1, usd: float | None = 0.5, name: str = "L4", fits: bool = True) -> Candidate:
    expected = 6_000_000_000 if fits else 60_000_000_000
    return Candidate(
        rank=rank,
        cluster=Cluster(device=replace(DEVICE, name=name), num_gpus=gpus),
        run_config=RunConfig(
            micro_batch_size=64, gradient_accumulation_steps=1, global_batch_size=64, precision="bf16"
        ),
        memory=MemoryEstimate(
            low_bytes=int(expected * 0.9),
            expected_bytes=expected,
            high_bytes=int(expected * 1.2),
            peak_allocated_bytes=int(expected * 0.85),
            visible_bytes=DEVICE.visible_bytes,
            terms={"params": expected // 2, "activations": expected // 2 - 500_000_000, "framework": 500_000_000},
            phases={"forward": expected},
        ),
        time=TimeEstimate(
            step_s=0.2,
            step_terms={"compute": 0.2},
            total_s=22.0,
            total_terms={"steps": 20.0, "eval": 2.0},
            low_s=18.0,
            high_s=30.0,
            num_steps=NUM_STEPS,
            source=Source.VENDOR_SPEC,
        ),
        cost=cost_of(usd) if usd is not None else None,
        why="the cheapest that finishes in time",
    )


def plan(**changes: Any) -> Plan:
    base = Plan(
        job=JOB,
        profile=DataProfile(
            num_samples=2133,
            num_eval_samples=200,
            lengths=lengths_declared(18.6, 64.0, 458.0),
            num_labels=2,
            label_counts={"abuse": 900, "clean": 1233},
            source=Source.MEASURED,
        ),
        num_params=127_784_458,
        num_trainable_params=127_784_458,
        candidates=(candidate(), candidate(2, gpus=2, usd=0.9), candidate(3, usd=None, name="A100-SXM4-40GB")),
        model=ResolvedModel(name="klue-bert-base", config={}),
        rejected=(Rejection(gpu="T4", num_gpus=1, reason="no bf16", fix="run.precision: fp16_amp", code="ST310"),),
        pick=1,
        runner_up=2,
        summary="Take 1 x L4.",
        smaller_gpu="A smaller GPU would need recompute.",
        notes=("klue-bert-base was taken from the bundled shapes",),
        offers_date="2026-10-01",
        offers_age_days=60,
        usd_krw=1400.0,
        usd_krw_date="2026-10-01",
    )
    return replace(base, **changes)


def in_won(base: Plan) -> Plan:
    return replace(base, job=replace(base.job, goal=GoalSpec(currency="KRW")))


def step(number: int, loss: float, **changes: Any) -> StepLine:
    base = StepLine(
        step=number,
        epoch=number / NUM_STEPS * 3,
        loss=loss,
        lr=2e-5,
        grad_norm=1.0,
        samples=640,
        tokens=12_000,
        padded_tokens=15_000,
        elapsed_s=number * 0.25 + 1.0,
        step_s=0.25 if number > 10 else 0.9,
        data_wait_s=0.01,
        allocated_bytes=5_000_000_000,
        reserved_bytes=5_800_000_000,
        cost_usd=number * 0.005,
    )
    return replace(base, **changes)


def evaluation(number: int, f1: float, best: bool) -> EvalLine:
    return EvalLine(
        step=number,
        epoch=number / NUM_STEPS * 3,
        metrics={"f1_macro": f1, "f1_micro": f1 + 0.05, "loss": 1.0 - f1},
        elapsed_s=number * 0.25 + 2.0,
        eval_s=1.0,
        is_best=best,
        labels={
            "abuse": {"f1": f1 + 0.1, "support": 90.0, "threshold": 0.41},
            "clean": {"f1": f1 - 0.1, "support": 1234.0, "threshold": 0.62},
        },
    )


def finished_lines() -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [("step", step(i, 0.7 * 0.97**i + 0.1)) for i in range(10, NUM_STEPS + 1, 10)]
    rows += [("eval", evaluation(50, 0.61, True)), ("eval", evaluation(100, 0.58, False))]
    rows.append(("save", SaveLine(step=100, path="checkpoints/step-100", save_s=1.5, num_bytes=10**9, elapsed_s=27.0)))
    rows.append(("event", EventLine(name="notice", message="3 rows were dropped", elapsed_s=0.5, code="ST110")))
    return rows


END: Mapping[str, Any] = {
    "status": "finished",
    "elapsed_s": 28.0,
    "metrics": {"f1_macro": 0.61, "f1_micro": 0.66, "loss": 0.39, "test_f1_macro": 0.6, "test_f1_micro": 0.66},
    "peak_allocated_bytes": 5_000_000_000,
    "peak_reserved_bytes": 5_800_000_000,
}


def write_record(
    folder: Path,
    lines: Sequence[tuple[str, Any]] | None = None,
    *,
    end: Mapping[str, Any] | None = END,
    of_plan: Plan | None = None,
    header: Mapping[str, Any] | None = None,
) -> Path:
    """A run folder with record.jsonl in it."""
    folder.mkdir(parents=True, exist_ok=True)
    head = {
        "kind": "header",
        "schema_version": 1,
        "plan": plan_to_json(of_plan or plan()),
        "versions": {"stoker": "0.1.0", "torch": "2.13.0"},
        "hardware": {"name": "L4", "dram_bytes": 25_000_000_000},
        "date": "2026-11-30",
        **(header or {}),
    }
    rows = [head, *({"kind": kind, **encode(line)} for kind, line in (finished_lines() if lines is None else lines))]
    if end is not None:
        rows.append({"kind": "end", **end})
    (folder / "record.jsonl").write_text("".join(dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


ELSEWHERE = (
    Elsewhere(cluster="1 x L4", total_s=22.0, fits=True, cost=cost_of(0.5)),
    Elsewhere(cluster="1 x H100-SXM5-80GB", total_s=4.0, fits=True, cost=cost_of(0.4, "lambda")),
    Elsewhere(cluster="1 x T4", total_s=90.0, fits=False, cost=None),
)
