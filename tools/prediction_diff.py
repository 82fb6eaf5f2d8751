"""Did predictions change? One wide grid of jobs, predicted by this code and by a reference, compared cell by cell.

    python tools/prediction_diff.py                  against the accepted baseline, tests/golden/predictions.csv
    python tools/prediction_diff.py --against REF    against a git ref: its own code runs the same grid in a worktree
    python tools/prediction_diff.py --accept         make today's predictions the baseline (say why in CHANGELOG)

Lists the drift of memory and step time (median, 90th percentile, the largest, which terms moved) and what turned
feasible. Exit 1 only where feasible turned infeasible or an error appeared, else 0: a drift is a fact, not a fault.
Whether predictions are *right* is `stoker validate`'s question.
"""

import argparse
import csv
import datetime
import io
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BASELINE = ROOT / "tests" / "golden" / "predictions.csv"
_DAY = datetime.date(2026, 11, 30)  # prices age; predictions must not
_COLUMNS = ("case", "gpu", "status", "memory_gb", "step_s", "total_s", "memory_terms", "step_terms")
_WORTH = 0.005  # a smaller change is rounding
_SHARE = 0.02  # smaller terms are left out of the file
_SHOWN = 12
_GPUS = ("T4", "RTX4090", "L4", "A100-SXM4-80GB", "H100-SXM5-80GB", "MI300X-192GB")
_DECODERS = (
    *("smollm2-135m", "qwen2.5-0.5b", "llama-3.2-1b", "gemma-2-2b", "phi-4-mini", "mistral-7b", "qwen2.5-7b"),
    *("llama-3.1-8b", "exaone-3.5-7.8b", "qwen3-30b-a3b", "llama-3.1-70b"),
)
_ENCODERS = ("kcelectra", "bert-base", "bert-large", "deberta-v3-base", "modernbert-base", "xlm-roberta-large")
_IMAGES = ("vit-base", "resnet-50", "efficientnet-b0", "convnext-tiny")
# micro-batch, tokens, recompute, loss
_LM_SHAPES = ((1, 2048, "full", "chunked"), (4, 1024, "none", "eager"), (1, 8192, "full", "chunked"))
_TEXT_SHAPES = ((8, 128, "none"), (64, 128, "none"), (32, 512, "full"))


@dataclass(frozen=True, slots=True)
class Cell:
    """One prediction. `status`: fits, does_not_fit, rejected:CODE, or error:TYPE. Numbers are None where there are
    none. Terms: share of the whole, those above 2 %."""

    status: str
    memory_gb: float | None
    step_s: float | None
    total_s: float | None
    memory_terms: Mapping[str, float]
    step_terms: Mapping[str, float]


Grid = dict[tuple[str, str], Cell]


def cases() -> Iterator[tuple[str, dict[str, Any], int]]:
    """(name, keyword arguments of a Job without hardware, number of GPUs)."""
    strategies = ((1, {}), (2, {"dp_replicate": 2}), (8, {"dp_shard": 8}))
    for model, method, shape, (gpus, degrees) in itertools.product(
        _DECODERS, ("full", "lora", "qlora"), _LM_SHAPES, strategies
    ):
        batch, tokens, recompute, loss = shape
        name = f"{model}/{method}/{batch}x{tokens}/{recompute}/{loss}/{gpus}"
        pins = {"micro_batch_size": batch, "recompute": recompute, "loss": loss, "parallel": degrees}
        yield name, _job(model, "causal_lm", method, tokens, batch * gpus * 2, pins), gpus
    for model, method, (batch, tokens, recompute), (gpus, degrees) in itertools.product(
        _ENCODERS, ("full", "lora"), _TEXT_SHAPES, strategies[:2]
    ):
        name = f"{model}/{method}/{batch}x{tokens}/{recompute}/{gpus}"
        pins = {"micro_batch_size": batch, "recompute": recompute, "parallel": degrees}
        yield name, _job(model, "text_classification", method, tokens, batch * gpus, pins), gpus
    for model, batch, (gpus, degrees) in itertools.product(_IMAGES, (16, 128), strategies[:2]):
        pins = {"micro_batch_size": batch, "recompute": "none", "parallel": degrees}
        yield f"{model}/full/{batch}/{gpus}", _job(model, "image_classification", "full", 1, batch * gpus, pins), gpus


def _job(model: str, task: str, method: str, tokens: int, batch: int, pins: Mapping[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {"num_samples": 10_000, "tokens_mean": tokens, "tokens_p99": tokens, "tokens_max": tokens}
    if task != "causal_lm":
        data["labels"] = [f"label{number}" for number in range(10)]
    return {
        "model": model,
        "task": task,
        "problem": "single_label",
        "data": data,
        "tune": {"method": method},
        "train": {"epochs": 1.0, "global_batch_size": batch, **({"seq_len": tokens} if tokens > 1 else {})},
        "run": pins,
    }


def predict() -> Grid:
    """The grid by the code that is imported; on a job that raises, every GPU gets the error."""
    from stoker.core.job import DataSpec, HardwareSpec, Job, ParallelSpec, RunPins, TrainSpec, TuneSpec
    from stoker.planner.gather import plan_job

    grid: Grid = {}
    for name, values, gpus in cases():
        degrees = values["run"]["parallel"]
        pins = {**values["run"], "parallel": ParallelSpec(**degrees) if degrees else "auto"}
        job = Job(
            model=values["model"],
            task=values["task"],
            problem=values["problem"],
            data=DataSpec(**values["data"]),
            tune=TuneSpec(**values["tune"]),
            train=TrainSpec(**values["train"]),
            hardware=HardwareSpec(gpus=list(_GPUS), num_gpus=gpus),
            run=RunPins(**pins),
        )
        try:
            plan = plan_job(job, today=_DAY)
        except Exception as error:
            code = getattr(error, "code", "") or type(error).__name__
            grid.update({(name, gpu): Cell(f"error:{code}", None, None, None, {}, {}) for gpu in _GPUS})
            continue
        for rejection in plan.rejected:
            grid[name, rejection.gpu] = Cell(f"rejected:{rejection.code}", None, None, None, {}, {})
        for candidate in plan.candidates:
            grid[name, candidate.cluster.device.name] = _cell(candidate)
    return grid


def _cell(candidate: Any) -> Cell:
    memory, times = candidate.memory, candidate.time
    return Cell(
        "fits" if memory.fits else "does_not_fit",
        _digits(memory.expected_bytes / 1e9),
        _digits(times.step_s),
        _digits(times.total_s),
        _shares(memory.terms),
        _shares(times.step_terms),
    )


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _shares(terms: Mapping[str, float]) -> dict[str, float]:
    whole = sum(terms.values()) or 1.0
    return {name: round(value / whole, 3) for name, value in terms.items() if abs(value) / whole > _SHARE}


def to_csv(grid: Grid) -> str:
    """One line a cell, sorted, so that two files can be compared by eye."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for (case, gpu), cell in sorted(grid.items()):
        terms = (_permille(each) for each in (cell.memory_terms, cell.step_terms))
        numbers = ("" if v is None else f"{v:.4g}" for v in (cell.memory_gb, cell.step_s, cell.total_s))
        writer.writerow((case, gpu, cell.status, *numbers, *terms))
    return stream.getvalue()


def _permille(terms: Mapping[str, float]) -> str:
    return " ".join(f"{name}:{round(1000 * share)}" for name, share in terms.items())


def from_csv(text: str) -> Grid:
    """What `to_csv` wrote."""
    grid: Grid = {}
    for row in csv.DictReader(io.StringIO(text)):
        memory, step, total = (float(row[name]) if row[name] else None for name in ("memory_gb", "step_s", "total_s"))
        grid[row["case"], row["gpu"]] = Cell(
            row["status"], memory, step, total, _terms(row["memory_terms"]), _terms(row["step_terms"])
        )
    return grid


def _terms(text: str) -> dict[str, float]:
    pairs = (part.rsplit(":", 1) for part in text.split())
    return {name: float(value) / 1000 for name, value in pairs}


def run_elsewhere(ref: str) -> Grid:
    """The grid by the code of a git ref, in a worktree and a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        subprocess.run(["git", "worktree", "add", "--detach", "-q", tree, ref], cwd=ROOT, check=True)
        try:
            return _run(tree)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=False)


def _run(tree: Path) -> Grid:
    """The grid by the code of `tree`, without this machine's own corrections."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "XDG_CACHE_HOME": cache, "STOKER_LANG": "en"}
        done = subprocess.run(
            [sys.executable, Path(__file__).resolve(), "--print-grid"], env=environment, capture_output=True, text=True
        )
    if done.returncode:
        raise SystemExit(f"the grid of {tree} failed:\n{done.stderr[-3000:]}")
    return from_csv(done.stdout)


@dataclass(frozen=True, slots=True)
class Drift:
    """One cell's change of one quantity: new over old, less 1; `term`: whose share of it is largest, signed."""

    where: tuple[str, str]
    change: float
    term: str


def compare(old: Grid, new: Grid) -> tuple[list[str], bool]:
    """(report lines, whether feasible turned infeasible or an error appeared)."""
    lost = [key for key, cell in old.items() if cell.status == "fits" and key in new and new[key].status != "fits"]
    won = [key for key, cell in new.items() if cell.status == "fits" and key in old and old[key].status != "fits"]
    errors = [
        key
        for key, cell in new.items()
        if cell.status.startswith("error") and (key not in old or not old[key].status.startswith("error"))
    ]
    gone = [key for key in old if key not in new]
    lines = [f"{len(new)} cells, {sum(cell.status == 'fits' for cell in new.values())} of them fit"]
    for name, terms in (("memory_gb", "memory_terms"), ("step_s", "step_terms"), ("total_s", None)):
        lines += _drift_lines(name, drifts(old, new, name, terms))
    lines += _listed("feasible turned infeasible", lost, old, new)
    lines += _listed("errors that appeared", errors, old, new)
    lines += _listed("now fits", won, old, new)
    if gone:
        lines.append(f"{len(gone)} cells are gone from the grid")
    return lines, bool(lost or errors)


def drifts(old: Grid, new: Grid, quantity: str, terms: str | None) -> list[Drift]:
    """Changes of the cells that have `quantity` in both, rounding left out."""
    found = []
    for key in old.keys() & new.keys():
        before, after = getattr(old[key], quantity), getattr(new[key], quantity)
        if before and after and abs(after / before - 1.0) > _WORTH:
            term = _moved(old[key], new[key], before, after, terms) if terms else ""
            found.append(Drift(key, after / before - 1.0, term))
    return sorted(found, key=lambda drift: -abs(drift.change))


def _moved(old: Cell, new: Cell, before: float, after: float, terms: str) -> str:
    """The term that moved most, in the quantity's own unit."""
    one, other = getattr(old, terms), getattr(new, terms)
    moves = {name: other.get(name, 0.0) * after - one.get(name, 0.0) * before for name in {**one, **other}}
    name = max(moves, key=lambda each: abs(moves[each]), default="")
    return f"{name} {moves[name]:+.3g}" if name else ""


def _drift_lines(name: str, found: Sequence[Drift]) -> list[str]:
    if not found:
        return [f"{name}: no change"]
    sizes = sorted(abs(drift.change) for drift in found)
    signed = median(drift.change for drift in found)
    lines = [
        f"{name}: {len(found)} cells changed, median {signed:+.1%}, "
        f"90 % within {sizes[int(0.9 * (len(sizes) - 1))]:.1%}, largest {found[0].change:+.1%}"
    ]
    terms: dict[str, int] = {}
    for drift in found:
        terms[drift.term.split(" ")[0]] = terms.get(drift.term.split(" ")[0], 0) + 1
    if any(terms):
        ordered = sorted(terms.items(), key=lambda item: -item[1])
        lines.append("  by the term that moved most: " + ", ".join(f"{term} {count}" for term, count in ordered))
    largest: dict[str, list[Drift]] = {}
    for drift in found:
        largest.setdefault(drift.where[0], []).append(drift)
    for case, of_case in itertools.islice(largest.items(), _SHOWN):
        first = of_case[0]
        others = f" and {len(of_case) - 1} other GPUs" if len(of_case) > 1 else ""
        lines.append(f"  {first.change:+.1%}  {case} on {first.where[1]}{others}  {first.term}".rstrip())
    return lines


def _listed(title: str, keys: Sequence[tuple[str, str]], old: Grid, new: Grid) -> list[str]:
    if not keys:
        return []
    lines = [f"{title}: {len(keys)}"]
    for key in sorted(keys)[:_SHOWN]:
        before = old[key].status if key in old else "absent"
        lines.append(f"  {' on '.join(key)}: {before} -> {new[key].status}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REF", help="compare with the code of a git ref instead of the baseline")
    parser.add_argument("--accept", action="store_true", help="write today's predictions as the baseline")
    parser.add_argument("--print-grid", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.print_grid:
        sys.stdout.write(to_csv(predict()))
        return 0
    start = time.perf_counter()
    new = _run(ROOT)
    print(f"predicted in {time.perf_counter() - start:.0f} s")
    if options.against:
        old = run_elsewhere(options.against)
    elif BASELINE.is_file():
        old = from_csv(BASELINE.read_text(encoding="utf-8"))
    else:
        old = {}
    lines, bad = compare(old, new)
    print("\n".join(lines))
    if options.accept:
        BASELINE.write_text(to_csv(new), encoding="utf-8")
        print(f"accepted: {BASELINE.relative_to(ROOT)}")
        return 0
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
