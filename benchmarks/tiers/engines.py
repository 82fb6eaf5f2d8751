"""One engine each: built on the machine's device, then `step()` at a time. Peers are imported only when asked for."""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from rows import Row

from stoker.core.run_config import TierShares
from stoker.core.schedule import TierBudgets
from stoker.engine.tiers import TieredTrainer
from stoker.engine.tiers.clock import StepTimes
from stoker.engine.tiers.losses import causal_lm_loss
from stoker.engine.tiers.placing import ENGINE_SHARES, TYPICAL, schedule_for
from stoker.engine.tiers.session import schedule_of
from stoker.techniques.optimizer.adamw import AdamW
from stoker.techniques.precision.masters import MasterWeightOptimizer
from stoker.techniques.recompute.switch_on import enable_recompute

LR, DECAY, CLIP = 1e-5, 0.01, 1.0
Step = Callable[[int], float]


def build_model(row: Row, device: torch.device) -> Any:
    """The row's Llama in bf16 with random weights, the same ones for every engine."""
    import transformers

    config = transformers.LlamaConfig(**row.shape, max_position_embeddings=max(row.seq_len, 2048), use_cache=False)
    config._attn_implementation = "sdpa"
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return transformers.LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)


def micro_batches(row: Row, step: int, device: torch.device) -> list[dict[str, torch.Tensor]]:
    """Random tokens, all of them counted; the same for every engine."""
    draw = torch.Generator().manual_seed(step)
    shape = (row.micro_sequences, row.seq_len)
    made = [torch.randint(0, row.shape["vocab_size"], shape, generator=draw) for _micro in range(row.micro_batches)]
    return [{"input_ids": ids.to(device), "labels": ids.to(device)} for ids in made]


def in_memory(row: Row, device: torch.device, options: dict[str, Any]) -> Step:
    """The reference: a plain loop, everything in GPU memory, fused AdamW on fp32 masters, gradients summed in fp32."""
    from stoker.techniques.precision.accumulate import GradientAccumulator

    model = build_model(row, device)
    enable_recompute(model)
    model.train()
    params = list(model.parameters())
    groups = [{"params": params, "lr": LR, "weight_decay": DECAY}]
    optimizer = MasterWeightOptimizer(AdamW().build, groups)
    sums = GradientAccumulator(params, row.micro_batches)
    clip = float(options.get("clip", CLIP))

    def step(number: int) -> float:
        micros = micro_batches(row, number, device)
        weight = float(sum(m["labels"][:, 1:].numel() for m in micros))
        total = torch.zeros((), device=device)
        for micro in micros:
            loss = causal_lm_loss(model, micro)
            torch.autograd.backward(loss / weight)
            sums.add()
            total += loss.detach()
        sums.finish()
        if clip > 0:
            norm = torch.nn.utils.get_total_norm([p.grad for p in params if p.grad is not None])
            optimizer.grad_scale = (clip / (norm.float() + 1e-6)).clamp(max=1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(total) / weight

    return step


def stoker_tiers(row: Row, device: torch.device, options: dict[str, Any]) -> Step:
    """Ours. Options: clip; any field of TierShares (state, weights, update, ...), which then says what leaves; of
    TierSchedule piece_bytes, ring_pieces, staging_pieces; cpu_units: how many of the last blocks DRAM updates."""
    named = {k: v for k, v in options.items() if k in TierShares.__dataclass_fields__}
    shares = replace(row.shares or ENGINE_SHARES, **named) if row.shares or named else None
    boundary = row.micro_sequences * row.seq_len * row.shape["hidden_size"] * 2

    def schedule(specs: Any) -> Any:
        if shares is None:
            made = schedule_for(specs, budgets, micro_batches=row.micro_batches)
        else:
            made = schedule_of(specs, shares, row.micro_batches, TYPICAL)
        extra = {k: v for k, v in options.items() if k in ("piece_bytes", "ring_pieces", "staging_pieces")}
        return _on_cpu(replace(made, **extra), int(options.get("cpu_units", 0)))

    dram = None if row.dram_gb is None else round(row.dram_gb * 1e9)
    budgets = TierBudgets(hbm_bytes=round(row.hbm_gb * 1e9), dram_bytes=dram)
    trainer = TieredTrainer(
        build_model(row, device),
        lr=LR,
        weight_decay=DECAY,
        max_grad_norm=float(options.get("clip", CLIP)),
        device=device,
        schedule=schedule,
        budgets=budgets,
        micro_batches=row.micro_batches,
        boundary_bytes=boundary,
        nvme_dir=options.get("nvme_dir") or tempfile.gettempdir(),
        notice=lambda text: print("notice:", text, flush=True),
    )
    if device.type == "cuda":
        torch.cuda.empty_cache()

    times = StepTimes()

    def step(number: int) -> float:
        result = trainer.step(micro_batches(row, number, device))
        times.add(result.seconds)
        return result.loss

    step.trainer, step.times = trainer, times  # type: ignore[attr-defined]
    return step


def _on_cpu(schedule: Any, count: int) -> Any:
    """`schedule` with the last `count` blocks that are off the device updated in DRAM, beside those that stream."""
    places = list(schedule.placements)
    away = [i for i in range(1, len(places) - 1) if places[i].state == "dram"]
    for index in away[len(away) - count :] if count else []:
        places[index] = replace(places[index], update="cpu")
    return replace(schedule, placements=tuple(places))


def deepspeed_offload(row: Row, device: torch.device, options: dict[str, Any]) -> Step:
    """DeepSpeed ZeRO offload. Options: stage (2 or 3), ratio (Twin-Flow), bucket, super_offload, nvme_dir, clip."""
    import deepspeed  # type: ignore[import-not-found]

    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("MASTER_PORT", str(29500 + os.getpid() % 1000))
    model = build_model(row, device)
    enable_recompute(model)
    model.train()
    stage, bucket = int(options.get("stage", 2)), int(options.get("bucket", 2e8))
    offload: dict[str, Any] = {"device": "cpu", "pin_memory": True}
    if "ratio" in options:
        offload["ratio"] = options["ratio"]
    if options.get("super_offload"):
        offload |= {"super_offload": True, "cpuadam_cores_perc": 0.75}
    if options.get("nvme_dir"):
        offload |= {"device": "nvme", "nvme_path": options["nvme_dir"]}
    zero: dict[str, Any] = {"stage": stage, "offload_optimizer": offload, "overlap_comm": True,
                            "contiguous_gradients": True, "reduce_bucket_size": bucket}  # fmt: skip
    if stage == 3:
        zero |= {"offload_param": {"device": "cpu", "pin_memory": True}, "sub_group_size": int(1e9)}
    config = {
        "train_micro_batch_size_per_gpu": row.micro_sequences,
        "gradient_accumulation_steps": row.micro_batches,
        "bf16": {"enabled": True},
        "zero_optimization": zero,
        "gradient_clipping": float(options.get("clip", CLIP)),
        "optimizer": {"type": "AdamW", "params": {"lr": LR, "weight_decay": DECAY}},
        "steps_per_print": 10**9,
    }
    engine, *_rest = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())

    def step(number: int) -> float:
        total = 0.0
        for micro in micro_batches(row, number, device):
            loss = causal_lm_loss(engine.module, micro) / micro["labels"][:, 1:].numel()
            engine.backward(loss)
            engine.step()
            total += float(loss)
        return total / row.micro_batches

    return step


ENGINES: dict[str, Callable[[Row, torch.device, dict[str, Any]], Step]] = {
    "in_memory": in_memory,
    "stoker": stoker_tiers,
    "deepspeed": deepspeed_offload,
}


def parse_engine(text: str) -> tuple[str, dict[str, Any]]:
    """`stoker:{"clip": 0}` to its name and options."""
    name, _colon, rest = text.partition(":")
    if name not in ENGINES:
        raise SystemExit(f"engines: {', '.join(ENGINES)}")
    return name, json.loads(rest) if rest else {}
