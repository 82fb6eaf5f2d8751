"""Makes src/stoker/catalogue/data/measurements.csv: measured facts, spread over sources, GPUs, methods.

`python tools/curate_measurements.py [TABLE]` (default ../shared/data/validation/measured.csv). Deterministic. Of each
source, GPU, method and quantity up to a few rows are taken, from the smallest run to the largest, and written in our
own names of models and GPUs. tools/measurements_kept.csv names rows of earlier releases, which stay so
that releases can be compared; tools/measurements_by_hand.csv holds what was measured here.
"""

import csv
import sys
from collections import defaultdict
from dataclasses import fields, replace
from pathlib import Path

from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.measurements import as_columns
from stoker.catalogue.tables import read_rows
from stoker.core.measurement import Measurement
from stoker.validation.notes import read_image_size, read_lengths, read_rounds
from stoker.validation.physics import impossible
from stoker.validation.predict import reading_of
from stoker.validation.score import library_version
from stoker.validation.table import read_table
from stoker.validation.trial import Trial, build_trial

TOOLS = Path(__file__).resolve().parent
OUTPUT = TOOLS.parent / "src" / "stoker" / "catalogue" / "data" / "measurements.csv"
TABLE = TOOLS.parent.parent / "shared" / "data" / "validation" / "measured.csv"
KEPT = TOOLS / "measurements_kept.csv"
BY_HAND = TOOLS / "measurements_by_hand.csv"
A_GROUP = 4  # rows of one source, GPU, method and quantity
STACK_WORDS = sorted({word for row in read_rows("stacks.csv") for word in row["words"].split(";") if word})


def main() -> None:
    """Choose, name and write."""
    table = Path(sys.argv[1]) if len(sys.argv) > 1 else TABLE
    efficiency = load_efficiency()
    groups: dict[tuple[str, ...], list[tuple[Measurement, Trial]]] = defaultdict(list)
    for row in read_table(table):
        found = row.measurement
        if found is None or found.quality not in ("measured", "user-report"):
            continue
        trial = build_trial(found, efficiency)
        if (
            isinstance(trial, Trial)
            and not impossible(trial)
            and found.metric in ("peak_mem_gb", "step_time_s", "oom", *RATES)
        ):
            device = trial.scenario.cluster.device.name
            groups[found.source, device, found.method, found.metric, trial.scenario.config.recompute].append(
                (found, trial)
            )
    kept = {(row["source"], row["metric"], float(row["value"])) for row in rows_of(KEPT)}
    chosen = {pair[0].line: pair for members in groups.values() for pair in spread(members)}
    for members in groups.values():
        chosen.update(
            (found.line, (found, trial))
            for found, trial in members
            if (found.source, found.metric, float(f"{found.value:g}")) in kept
        )
    rows = [as_columns(renamed(*pair)) for _line, pair in sorted(chosen.items())] + rows_of(BY_HAND)
    columns = [entry.name for entry in fields(Measurement) if entry.name != "line"] + ["date"]
    with OUTPUT.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({"date": "2026-11-30", **row} for row in rows)
    print(
        f"{len(rows)} rows of {len({row['source'] for row in rows})} sources, {len({row['gpu'] for row in rows})} GPUs"
    )


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file beside this one."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


RATES = ("tokens_per_s_per_gpu", "samples_per_s_per_gpu")


def spread(members: list[tuple[Measurement, Trial]]) -> list[tuple[Measurement, Trial]]:
    """Up to A_GROUP of `members`, evenly from the smallest model and length to the largest."""
    ordered = sorted(
        members,
        key=lambda pair: (
            pair[1].scenario.ledger.arch.num_params,
            pair[0].seq_len or 0,
            pair[0].micro_batch_size or 0,
            pair[0].line,
        ),
    )
    if len(ordered) <= A_GROUP:
        return ordered
    return [ordered[round(i * (len(ordered) - 1) / (A_GROUP - 1))] for i in range(A_GROUP)]


def renamed(found: Measurement, trial: Trial) -> Measurement:
    """The row under our names of model and GPU; how it was run stays in the source's words, its note in a few."""
    return replace(
        found,
        model=found.model if "generic model" in trial.widened else trial.model,
        gpu=trial.scenario.cluster.device.name if "gpu form" not in trial.widened else found.gpu,
        num_gpus=found.num_gpus or 1,
        unit=unit_name(found, trial),
        note=note_of(found, trial),
    )


def unit_name(found: Measurement, trial: Trial) -> str:
    """The unit with what was read."""
    if found.metric != "peak_mem_gb":
        return "s per micro-batch" if "micro-batch" in found.unit.split("(")[0] else found.unit.split("(")[0].strip()
    size = "GiB" if "gib" in found.unit.casefold() else "GB"
    return f"{size} {reading_of(found.unit, trial.scenario.stack.memory_reading)}"


def note_of(found: Measurement, trial: Trial) -> str:
    """What predictions need of the note, in a fixed form."""
    parts: list[str] = []
    text = f"{found.model} {found.note}"
    parts += [word for word in STACK_WORDS if word.casefold() in text.casefold()]  # by which a stack is told
    if trial.method != "full":
        parts.append(f"r={trial.tune.rank}")
        targets = trial.tune.targets
        parts.append(f"targets={targets}" if isinstance(targets, list) else targets.replace("-", " "))
    lengths = read_lengths(found)
    if lengths is not None:
        parts.append(found.note[found.note.index("tokens mean") :].split(")")[0] + ")")
    parts += [word for word in ("Alpaca2k", "alpaca unpadded") if word in found.note]
    rounds, size, version = read_rounds(found), read_image_size(found), library_version(found)
    parts += [f"grad_accum={rounds}"] * (rounds is not None) + [f"img_size={size}"] * (size is not None)
    if trial.scenario.config.capture == "compile":
        parts.append("compile")
    if version:
        parts.append(f"{version} NeMo Container" if "NeMo" in found.note else f"torch {version}")
    return "; ".join(parts)


if __name__ == "__main__":
    main()
