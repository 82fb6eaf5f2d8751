"""Component truth of one GPU: context, loss kernels, and our own step over a grid of shapes, techniques and batches.

Usage (on a GPU, no network): PYTHONPATH=src python3 benchmarks/component_grid.py OUT.json [--only PREFIX]
Every cell builds the model with random weights through the engine's own parts, runs 2 + 6 steps, and records the
peak allocated and reserved bytes, the median step, and what one profiled step launched: kernels and their device time.
Out-of-memory cells are kept. Rows go to OUT.json as they come, so that a cut run keeps what it measured.
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from stoker.catalogue.models.lookup.bundled import find_bundled
from stoker.core.job import DataSpec, Job, TrainSpec, TuneSpec
from stoker.core.plan import ResolvedModel
from stoker.core.run_config import RunConfig
from stoker.engine.build import build_model
from stoker.engine.microbatch import MicroBatch
from stoker.engine.objective import NextToken, SingleLabel
from stoker.engine.param_groups import parameter_groups
from stoker.engine.update import Updater
from stoker.techniques.loss import loss
from stoker.techniques.optimizer import optimizer
from stoker.techniques.precision import precision

WARM_UP, STEPS = 2, 6
LABELS = tuple(f"label{i}" for i in range(10))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One point of the grid. `seq_len`: tokens of every sample (images: the model's own size)."""

    model: str
    task: str
    method: str
    precision: str
    micro_batch_size: int
    seq_len: int
    recompute: str = "none"
    loss: str = "eager"
    attention: str = "sdpa"

    @property
    def name(self) -> str:
        return (
            f"{self.model}/{self.method}/{self.precision}/mb{self.micro_batch_size}/s{self.seq_len}"
            f"/{self.recompute}/{self.loss}/{self.attention}"
        )


def cells() -> Iterator[Cell]:
    """The grid: decoders, encoders and image models; the cheap ones first."""
    for model, seqs in (("kcelectra", (64, 128, 512)), ("bert-base", (128, 384)), ("bert-large", (128, 512))):
        for seq in seqs:
            for batch in (8, 64):
                for form in ("bf16_amp", "bf16"):
                    yield Cell(
                        model=model,
                        task="text_classification",
                        method="full",
                        precision=form,
                        micro_batch_size=batch,
                        seq_len=seq,
                    )
    for kernel in ("eager", "sdpa"):
        yield Cell(
            model="bert-base",
            task="text_classification",
            method="full",
            precision="fp32",
            micro_batch_size=32,
            seq_len=384,
            attention=kernel,
        )
    yield Cell(
        model="kcelectra",
        task="text_classification",
        method="lora",
        precision="bf16_amp",
        micro_batch_size=64,
        seq_len=128,
    )
    for model in ("vit-base-patch16-224", "resnet-50", "convnext-tiny", "efficientnet-b0"):
        for batch in (16, 128):
            yield Cell(
                model=model,
                task="image_classification",
                method="full",
                precision="bf16_amp",
                micro_batch_size=batch,
                seq_len=1,
            )
    yield from _decoders()


def _decoders() -> Iterator[Cell]:
    small = (("smollm2-135m", (1, 8)), ("qwen2.5-0.5b", (1, 8)), ("llama-3.2-1b", (1, 4)))
    for model, batches in small:
        for method in ("full", "lora"):
            for batch in batches:
                for seq in (512, 2048):
                    for again in ("none", "full"):
                        yield Cell(
                            model=model,
                            task="causal_lm",
                            method=method,
                            precision="bf16",
                            micro_batch_size=batch,
                            seq_len=seq,
                            recompute=again,
                            loss="eager" if again == "none" else "chunked",
                        )
    for model, method, batch, seq, again in (
        ("qwen2.5-1.5b", "full", 4, 2048, "full"),
        ("qwen2.5-7b", "lora", 1, 2048, "none"),
        ("qwen2.5-7b", "lora", 4, 2048, "full"),
        ("llama-3.1-8b", "lora", 1, 1024, "none"),
        ("llama-3.1-8b", "lora", 2, 8192, "full"),
        ("llama-3.1-8b", "full", 1, 2048, "full"),
    ):
        yield Cell(
            model=model,
            task="causal_lm",
            method=method,
            precision="bf16_pure" if method == "full" else "bf16",
            micro_batch_size=batch,
            seq_len=seq,
            recompute=again,
            loss="chunked" if again == "full" else "eager",
        )


def measure(cell: Cell) -> dict[str, Any]:
    """The row of one cell; `oom` true where it ran out of memory."""
    row: dict[str, Any] = asdict(cell)
    try:
        row |= _steps(cell)
    except torch.cuda.OutOfMemoryError:
        row["oom"] = True
    except Exception as error:
        row["failed"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
    return row


def _steps(cell: Cell) -> dict[str, Any]:
    bundled = find_bundled(cell.model)
    assert bundled is not None, cell.model
    job = Job(
        model=cell.model,
        task=cell.task,  # type: ignore[arg-type]
        data=DataSpec(num_samples=1, labels="label"),
        problem="single_label",
        tune=TuneSpec(method=cell.method, rank=16),  # type: ignore[arg-type]
        train=TrainSpec(global_batch_size=cell.micro_batch_size, seq_len=cell.seq_len),
    )
    config = RunConfig(
        micro_batch_size=cell.micro_batch_size,
        gradient_accumulation_steps=1,
        global_batch_size=cell.micro_batch_size,
        precision=cell.precision,  # type: ignore[arg-type]
        recompute=cell.recompute,  # type: ignore[arg-type]
        loss=cell.loss,  # type: ignore[arg-type]
        attention=cell.attention,  # type: ignore[arg-type]
    )
    resolved = ResolvedModel(name=cell.model, config=bundled.config, random_weights=True)
    with torch.device("cuda"):
        built = build_model(job, resolved, config, LABELS if cell.task != "causal_lm" else ())
    model = built.model.cuda().train()
    form = precision(cell.precision)
    technique = optimizer("adamw")
    updater = Updater(
        form.wrap_optimizer(technique, parameter_groups(model, job.train, built.fresh)),
        [p for p in model.parameters() if p.requires_grad],
        factor=lambda _step: 1.0,
        max_grad_norm=1.0,
    )
    objective = NextToken(loss(cell.loss).language_model_loss) if cell.task == "causal_lm" else SingleLabel()
    micro = _micro_batch(cell, bundled.config)

    def step() -> None:
        with form.autocast("cuda"):
            total = objective.loss_sum(model, micro)
        torch.autograd.backward(total * updater.loss_factor(micro.weight))
        updater.step(total.detach())

    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {
        "num_params": built.num_params,
        "num_trainable": built.num_trainable_params,
        "steps_s": [round(s, 6) for s in seconds],
        "median_step_s": round(statistics.median(seconds), 6),
        "peak_allocated_bytes": peaks[0],
        "peak_reserved_bytes": peaks[1],
        **_profiled(step),
    }


def _profiled(step: Any) -> dict[str, Any]:
    """Kernels of one step and their seconds on the device, by what they are."""
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        step()
        torch.cuda.synchronize()
    kinds: dict[str, list[float]] = {}
    for event in trace.profiler.kineto_results.events():  # the averaged view drops kernels without a CPU parent
        if "CUDA" not in str(event.device_type()):
            continue
        entry = kinds.setdefault(_kind(event.name()), [0, 0.0])
        entry[0] += 1
        entry[1] += event.duration_ns() / 1e9
    return {
        "kernels": int(sum(count for count, _s in kinds.values())),
        "device_s": round(sum(s for _count, s in kinds.values()), 6),
        "device_s_by_kind": {kind: [int(count), round(s, 6)] for kind, (count, s) in sorted(kinds.items())},
    }


def _kind(kernel: str) -> str:
    low = kernel.lower()
    for kind, marks in (
        ("attention", ("flash", "fmha", "attention", "efficient")),
        ("matmul", ("gemm", "nvjet", "cutlass", "cublas", "xmma", "wgrad", "dgrad", "convolve", "conv", "fprop")),
        ("optimizer", ("multi_tensor", "fused_adam", "foreach")),
        ("copy", ("memcpy", "memset", "copy")),
        ("softmax_loss", ("softmax", "nll")),
        ("norm", ("layer_norm", "layernorm", "batch_norm", "bn_")),
        ("reduce", ("reduce",)),
        ("embedding", ("embedding", "index", "scatter", "gather")),
    ):
        if any(mark in low for mark in marks):
            return kind
    return "elementwise"


def _micro_batch(cell: Cell, config: Any) -> MicroBatch:
    batch, seq = cell.micro_batch_size, cell.seq_len
    generator = torch.Generator(device="cuda").manual_seed(0)
    if cell.task == "image_classification":
        size = int(config.get("image_size") or 224)
        images = torch.randn(batch, 3, size, size, device="cuda", generator=generator)
        targets = torch.randint(0, len(LABELS), (batch,), device="cuda", generator=generator)
        return MicroBatch(
            inputs={"pixel_values": images}, targets=targets, samples=batch, tokens=batch, padded_tokens=batch,
            weight=float(batch),
        )  # fmt: skip
    ids = torch.randint(5, int(config["vocab_size"]), (batch, seq), device="cuda", generator=generator)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if cell.task == "causal_lm":
        targets = torch.roll(ids, -1, dims=1)
        weight = float(batch * seq)
    else:
        targets = torch.randint(0, len(LABELS), (batch,), device="cuda", generator=generator)
        weight = float(batch)
    return MicroBatch(
        inputs=inputs, targets=targets, samples=batch, tokens=batch * seq, padded_tokens=batch * seq, weight=weight
    )


def loss_rows() -> Iterator[dict[str, Any]]:
    """Forward and backward of each loss kernel alone: bytes a logit beyond hidden states and head, and seconds."""
    for vocab, hidden in ((32000, 2048), (128256, 2048), (151936, 1536)):
        head = torch.nn.Linear(hidden, vocab, bias=False, device="cuda", dtype=torch.bfloat16)
        for tokens in (2048, 8192):
            for name in ("eager", "chunked"):
                states = torch.randn(1, tokens, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                labels = torch.randint(0, vocab, (1, tokens), device="cuda")
                for turn in range(3):
                    torch.cuda.synchronize()
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                    before, start = torch.cuda.memory_allocated(), time.perf_counter()
                    loss(name).language_model_loss(states, head, labels).backward()
                    torch.cuda.synchronize()
                    took = time.perf_counter() - start
                    peak = torch.cuda.max_memory_allocated() - before
                    if turn == 0:  # later turns start with gradients there
                        first = peak
                head.weight.grad = None
                yield {
                    "loss_kernel": name, "tokens": tokens, "vocab": vocab, "hidden": hidden,
                    "peak_bytes_first": first, "peak_bytes": peak, "bytes_per_logit": round(peak / tokens / vocab, 3),
                    "seconds": round(took, 6),
                }  # fmt: skip
        del head


def context_row() -> dict[str, Any]:
    """Bytes of the process on the device beyond what torch reserved: bare context, then with matrix libraries."""
    import os

    import pynvml

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    def outside() -> int:
        ours = [p for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid == os.getpid()]
        if ours and ours[0].usedGpuMemory:
            return int(ours[0].usedGpuMemory) - torch.cuda.memory_reserved()
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()

    bare = outside()
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    allocated = torch.cuda.memory_allocated()
    matrix @ matrix
    torch.cuda.synchronize()
    workspace = torch.cuda.memory_allocated() - allocated
    query = torch.randn(1, 8, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward()
    torch.cuda.synchronize()
    return {
        "device": torch.cuda.get_device_name(), "visible_bytes": torch.cuda.mem_get_info()[1],
        "context_bare_bytes": bare, "context_after_kernels_bytes": outside(), "workspace_bytes": workspace,
    }  # fmt: skip


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="cells whose name starts with this")
    parser.add_argument("--seconds", type=float, default=480.0, help="stop starting cells after this long")
    arguments = parser.parse_args()
    started = time.perf_counter()
    result: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "torch": torch.__version__, "context": context_row()}
    import transformers

    result["transformers"] = transformers.__version__
    result["losses"] = list(loss_rows())
    result["cells"] = []
    for cell in cells():
        if not cell.name.startswith(arguments.only):
            continue
        if time.perf_counter() - started > arguments.seconds:
            result.setdefault("not_run", []).append(cell.name)
            continue
        row = measure(cell)
        gc.collect()
        torch.cuda.empty_cache()
        result["cells"].append(row)
        arguments.out.write_text(json.dumps(result, indent=1))
        short = f"{row.get('median_step_s', 0) * 1e3:8.1f} ms {row.get('peak_allocated_bytes', 0) / 1e9:7.2f} GB"
        print(f"{short} {row.get('kernels', 0):6d} kernels {row.get('device_s', 0) * 1e3:8.1f} ms device "
              f"{row.get('failed', 'oom' if row.get('oom') else '')} {cell.name}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
