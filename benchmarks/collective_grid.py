"""Collective truth of one host: what a communicator costs in memory, and seconds of each ring collective by size.

Usage (N GPUs): torchrun --nproc-per-node N benchmarks/collective_grid.py OUT.json. Rank 0 writes. Bus bandwidth as
nccl-tests define it: bytes x 2(n-1)/n / s for an all-reduce, bytes x (n-1)/n / s for the two others.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def used_bytes() -> int:
    """Bytes in use on this rank's device beyond what torch reserved."""
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def timed(operation: Any, repeats: int) -> float:
    """Median seconds of `operation`, each between two synchronisations of the device."""
    seconds = []
    for _turn in range(repeats + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        operation()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds[2:])[repeats // 2]


def main() -> None:
    """Measure and write."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.zeros(1, device="cuda")
    before = used_bytes()
    dist.init_process_group("nccl")
    ranks = dist.get_world_size()
    dist.all_reduce(torch.zeros(1, device="cuda"))
    after_first = used_bytes()
    rows = []
    for megabytes in (0.004, 0.25, 1, 16, 64, 256, 1024):
        count = int(megabytes * 1e6) // 4 // ranks * ranks
        full = torch.zeros(count, device="cuda")
        part = torch.zeros(count // ranks, device="cuda")
        for name, factor, operation in (
            ("all_reduce", 2 * (ranks - 1) / ranks, lambda full=full: dist.all_reduce(full)),
            (
                "all_gather",
                (ranks - 1) / ranks,
                lambda full=full, part=part: dist.all_gather_into_tensor(full, part),
            ),
            (
                "reduce_scatter",
                (ranks - 1) / ranks,
                lambda full=full, part=part: dist.reduce_scatter_tensor(part, full),
            ),
        ):
            seconds = timed(operation, 15)
            rows.append(
                {
                    "operation": name,
                    "num_bytes": 4 * count,
                    "seconds": seconds,
                    "bus_bytes_per_s": 4 * count * factor / seconds,
                }
            )
        del full, part
        torch.cuda.empty_cache()
    result = {
        "device": torch.cuda.get_device_name(),
        "ranks": ranks,
        "torch": torch.__version__,
        "communicator_first_bytes": after_first - before,
        "communicator_bytes": used_bytes() - before,
        "collectives": rows,
    }
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(result, indent=1))
        for row in rows:
            print(
                f"{row['operation']:15} {row['num_bytes'] / 1e6:9.3f} MB {row['seconds'] * 1e6:10.1f} us "
                f"{row['bus_bytes_per_s'] / 1e9:7.1f} GB/s"
            )
        print({k: v for k, v in result.items() if k != "collectives"})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
