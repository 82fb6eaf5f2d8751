"""One benchmark record (JSON on stdout) from a run folder: what was run, on what, each logged step time, peaks.

    python tools/benchmark_record.py RUN_FOLDER --workload NAME > benchmarks/records/DATE-NAME.json

`steps_s` are the run's logged step times in seconds: each is the mean since the line before, so a slow single step is
inside its window's mean. Bytes are the allocator's; `host_rss_bytes` is the process's peak. A run that failed (out of
memory, say) is recorded too: `status` and `error` say how it ended.
"""

import argparse
import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

from stoker.core.record_io import read_record


def benchmark_record(folder: Path, workload: str, commit: str) -> dict[str, Any]:
    """The record of a run, however it ended. Raises RecordError where the folder holds no readable record."""
    record = read_record(folder)
    end = record.end or {}
    candidate = record.header["plan"]["candidates"][0]
    steps_s = [line.step_s for line in record.steps]
    steps = end.get("steps") or (record.steps[-1].step if record.steps else 0)
    return {
        "workload": workload,
        "engine": "stoker",
        "config": candidate["run_config"],
        "commit": commit,
        "versions": record.header["versions"],
        "hardware": record.header["hardware"],
        "date": record.header.get("date"),
        "status": record.status,
        "error": " ".join(str(end[key]) for key in ("code", "error") if end.get(key)) or None,
        "steps": steps,
        "steps_s": [round(value, 6) for value in steps_s],
        "median_step_s": round(statistics.median(steps_s), 6) if steps_s else None,
        "tokens_per_step": round(end["tokens"] / steps, 2) if steps and "tokens" in end else None,
        "samples_per_step": round(end["samples"] / steps, 2) if steps and "samples" in end else None,
        "total_s": round(end["elapsed_s"], 3) if "elapsed_s" in end else None,
        "peak_allocated_bytes": end.get("peak_allocated_bytes"),
        "peak_reserved_bytes": end.get("peak_reserved_bytes"),
        "host_rss_bytes": end.get("host_rss_bytes"),
        "metrics": end.get("metrics"),
        "predicted": {
            "step_s": candidate["time"]["step_s"],
            "total_s": candidate["time"]["total_s"],
            "peak_allocated_bytes": candidate["memory"]["peak_allocated_bytes"],
            "expected_bytes": candidate["memory"]["expected_bytes"],
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--commit", help="commit the run was made with (default: HEAD)")
    args = parser.parse_args()
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = args.commit or subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()
    print(json.dumps(benchmark_record(args.folder, args.workload, commit), ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
