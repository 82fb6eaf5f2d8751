"""Speed of the planner: candidates estimated (memory and time), seconds on one core, and a cold start of `stoker plan`.

Usage: python benchmarks/planner_speed.py [--cold RUNS]. Bars: 10,000 candidates within 2 s, a cold start within 0.7 s.
A candidate is a cluster x strategy x techniques x micro-batch size, each estimated in full; offers are joined after.
Lengths vary, so that no shortcut of constant lengths counts. The search itself estimates fewer: it is timed too.
Seconds are processor time of one core, so that a busy machine does not spoil them.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.gpus import all_devices
from stoker.catalogue.models.api import arch_from_config
from stoker.core.job import DataSpec, HardwareSpec, Job, TrainSpec
from stoker.core.profile import DataProfile, lengths_declared
from stoker.planner.evaluate import Evaluator
from stoker.planner.space import clusters, run_configs

CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
JOB = """model: llama-3.1-8b
task: causal_lm
data: {num_samples: 50000, tokens_mean: 420, tokens_p99: 1900, tokens_max: 4096}
train: {epochs: 2, global_batch_size: 128, seq_len: 4096}
"""
WANTED = 10_000


def evaluator() -> tuple[Evaluator, int]:
    """An evaluator of an 8 B job over every CUDA product of the table, and the most GPUs it may use."""
    gpus = [device.name for device in all_devices() if device.kind == "cuda" and device.peak_flops_per_s]
    job = Job(
        model="llama",
        task="causal_lm",
        data=DataSpec(num_samples=50_000, tokens_mean=420, tokens_p99=1900, tokens_max=4096),
        train=TrainSpec(global_batch_size=128, seq_len=4096),
        hardware=HardwareSpec(gpus=gpus, max_gpus=64),
    )
    profile = DataProfile(num_samples=50_000, lengths=lengths_declared(420, 1900, 4096), num_eval_samples=500)
    arch = arch_from_config(CONFIG, task="causal_lm", name="llama")
    efficiency = replace(load_efficiency(), corrections=())
    return Evaluator(job=job, profile=profile, arch=arch, efficiency=efficiency), 64


def every_candidate() -> tuple[int, float]:
    """(candidates estimated in full, seconds)."""
    found, _most = evaluator()
    start = time.process_time()
    count = 0
    for cluster in clusters(found.job, None):
        for family in run_configs(found.job, cluster, found.arch):
            for config in family:
                found.memory(cluster, config)
                found.time(cluster, config)
                count += 1
                if count == WANTED:
                    return count, time.process_time() - start
    return count, time.process_time() - start


def search() -> tuple[int, float]:
    """(clusters searched, seconds) of the planner's own search over the same space."""
    found, _most = evaluator()
    wanted = clusters(found.job, None)
    start = time.process_time()
    for cluster in wanted:
        found.candidate(cluster)
    return len(wanted), time.process_time() - start


def cold_start(runs: int) -> float:
    """Median processor seconds of `stoker plan JOB --json` in a fresh interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.yaml"
        job.write_text(JOB, encoding="utf-8")
        command = [sys.executable, "-m", "stoker", "plan", str(job), "--json"]
        # as installed: with compiled modules, which a first run leaves
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        seconds = []
        for _run in range(runs + 1):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, check=True, capture_output=True, env=environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(seconds[1:])


def main() -> None:
    """Print the three figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cold", type=int, default=5, help="cold starts to time; 0: none")
    runs = parser.parse_args().cold
    count, seconds = every_candidate()
    print(f"estimated {count} candidates in {seconds:.2f} s: {count / seconds:,.0f} a second")
    searched, seconds = search()
    print(f"searched {searched} clusters in {seconds:.2f} s")
    if runs:
        print(f"cold start of stoker plan: {cold_start(runs):.2f} s (median of {runs})")


if __name__ == "__main__":
    main()
