"""Step times of one row, the engines interleaved: each lives in a process of its own and they step in turn.

    python benchmarks/tiers/run.py --row W1 --engines in_memory stoker 'stoker:{"clip": 0}' --out DIR
    python benchmarks/tiers/run.py --row W2 --tiny              # on a CPU, in seconds: does everything start?

A record a engine in DIR (benchmarks/README.md says what is in it), and one line a engine on the screen. All engines but
`in_memory` have their allocator capped at the row's GPU budget. Before the first step the floors are printed: bytes
over the link, operations over the rate.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from rows import Row, row_named

from stoker.core.run_config import TierShares

_MATMUL_FLOPS_PER_S, _LINK_BYTES_PER_S, _DISK_BYTES_PER_S = 805e12, 49e9, 2.0e9  # measured for ENGINE.md


def main() -> None:
    options = _arguments()
    row = row_named(options.row)
    row = row.tiny() if options.tiny else row
    print(json.dumps({"row": row.name, "floors": floors(row)}), flush=True)
    context = multiprocessing.get_context("spawn")
    workers = []
    for text in options.engines:
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, text, row, options.tiny, options.trace))
        process.start()
        workers.append((text, process, ours, []))
        reply = ours.recv()  # one is built after the other: pinning and loading share the host
        print(json.dumps({"engine": text, "ready": reply}), flush=True)
    for number in range(options.warmup + options.steps):
        for _text, process, pipe, found in workers:
            if process.is_alive():
                pipe.send(number)
                found.append(pipe.recv())
    for text, process, pipe, found in workers:
        facts = {}
        if process.is_alive():
            pipe.send(None)
            facts = pipe.recv()
            process.join(60)
        record = make_record(row, text, found, facts, options)
        if options.out:
            Path(options.out).mkdir(parents=True, exist_ok=True)
            name = f"{record['date']}-{row.name}-{len(list(Path(options.out).iterdir()))}.json"
            (Path(options.out) / name).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(json.dumps({k: record[k] for k in ("engine", "config", "median_step_s", "tokens_per_step",
              "peak_reserved_bytes", "host_rss_bytes", "error")}), flush=True)  # fmt: skip


def floors(row: Row) -> dict[str, float]:
    """Seconds below which no engine of this design gets: computing, state over the link, state over the disk."""
    s = row.shape
    width, layers = s["hidden_size"], s["num_hidden_layers"]
    kv = width * s["num_key_value_heads"] / s["num_attention_heads"]
    block = 2 * width * width + 2 * width * kv + 3 * width * s["intermediate_size"]
    head = width * s["vocab_size"]
    params = layers * block + head * (1 if s["tie_word_embeddings"] else 2)
    tokens = row.micro_batches * row.micro_sequences * row.seq_len
    attention = 2.0 * 2 * width * (row.seq_len / 2) * layers  # scores and values, causal
    flops = tokens * (4 * (2 * layers * block + attention) + 4 * 2 * head)  # forward, again, backward twice
    shares = row.shares or TierShares(state=1.0)  # the rule keeps some of it
    state = 10.0 * params * shares.state
    return {
        "params": params,
        "compute_s": flops / _MATMUL_FLOPS_PER_S,
        "state_over_link_s": state / _LINK_BYTES_PER_S,
        "state_over_disk_s": 2 * state * shares.nvme / _DISK_BYTES_PER_S,
    }


def make_record(row: Row, text: str, found: list[Any], facts: dict[str, Any], options: Any) -> dict[str, Any]:
    """DESIGN.md's benchmark record; a run that broke keeps its error, and its row."""
    steps = [reply["step_s"] for reply in found if "step_s" in reply][options.warmup :]
    error = next((reply["error"] for reply in found if "error" in reply), facts.get("error"))
    name, _colon, config = text.partition(":")
    return {
        "workload": row.name,
        "engine": name,
        "config": json.loads(config) if config else {},
        "commit": _commit(),
        "versions": facts.get("versions", {}),
        "hardware": facts.get("hardware", platform.processor()),
        "steps_s": steps,
        "median_step_s": statistics.median(steps) if steps else None,
        "losses": [reply["loss"] for reply in found if "loss" in reply],
        "tokens_per_step": row.micro_batches * row.micro_sequences * row.seq_len,
        "floors": floors(row),
        "peak_allocated_bytes": facts.get("peak_allocated_bytes"),
        "peak_reserved_bytes": facts.get("peak_reserved_bytes"),
        "context_bytes": facts.get("context_bytes"),
        "host_rss_bytes": facts.get("host_rss_bytes"),
        "tier_bytes": facts.get("tier_bytes"),
        "terms": facts.get("terms"),
        "state_off_device_bytes": facts.get("state_off_device_bytes"),
        "error": error,
        "date": datetime.date.today().isoformat(),
    }


def _work(pipe: Any, text: str, row: Row, tiny: bool, trace: str | None) -> None:
    try:
        _serve(pipe, text, row, tiny, trace)
    except BaseException as error:
        traceback.print_exc()
        pipe.send({"error": f"{type(error).__name__}: {error}"[:500]})


def _serve(pipe: Any, text: str, row: Row, tiny: bool, trace: str | None) -> None:
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # as `stoker run` sets it
    import torch
    from engines import ENGINES, parse_engine

    device = torch.device("cpu" if tiny or not torch.cuda.is_available() else "cuda:0")
    name, options = parse_engine(text)
    if device.type == "cuda" and name != "in_memory":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(row.hbm_gb * 1e9 / total, device)
    started = time.perf_counter()
    step = ENGINES[name](row, device, options)
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    pipe.send({"build_s": round(time.perf_counter() - started, 2)})
    while (number := pipe.recv()) is not None:
        traced = trace is not None and name == "stoker" and number == 3
        pipe.send(_timed(step, number, device, trace if traced else None))
    pipe.send(_facts(step, device))


def _timed(step: Any, number: int, device: Any, trace: str | None) -> dict[str, float]:
    import torch

    if trace is not None:
        with torch.profiler.profile() as profile:
            loss = step(number)
            if device.type == "cuda":
                torch.cuda.synchronize()
        profile.export_chrome_trace(trace)
        return {"loss": loss}
    begun = time.perf_counter()
    loss = step(number)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return {"step_s": time.perf_counter() - begun, "loss": loss}


def _facts(step: Any, device: Any) -> dict[str, Any]:
    import torch
    import transformers

    facts: dict[str, Any] = {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "hardware": torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or "cpu",
        "host_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    if device.type == "cuda":
        facts["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
        facts["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
        facts["context_bytes"] = _process_bytes() - torch.cuda.memory_reserved()
    trainer = getattr(step, "trainer", None)
    if trainer is not None:
        flash = trainer.assembly.flash
        facts["terms"] = step.times.medians() and asdict(step.times.medians())
        facts["state_off_device_bytes"] = sum(
            h.layout.state_bytes for h in trainer.assembly.homes if h.place.state != "hbm"
        )
        facts["tier_bytes"] = {
            "dram": trainer.assembly.host_bytes,
            "nvme": flash.num_bytes if flash else 0,
            "flash_written": flash.written_bytes if flash else 0,
        }
    return facts


def _process_bytes() -> int:
    """GPU memory in use outside torch's pool too: total less free. With several engines at once an upper bound."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return total - free


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--row", required=True)
    parser.add_argument("--engines", nargs="+", default=["in_memory", "stoker", 'stoker:{"clip": 0}'])
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--out")
    parser.add_argument("--trace", help="chrome trace of one warm-up step of ours")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes on a CPU")
    return parser.parse_args()


if __name__ == "__main__":
    main()
