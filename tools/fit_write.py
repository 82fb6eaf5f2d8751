"""Write what the fit found into the catalogue: fitted cells, spreads, and the constants of each source left out."""

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import exp
from pathlib import Path

import numpy as np
from fit_facts import OWN, Fact
from fitting import Fit, Problem, refit_without

from stoker.core.efficiency import Efficiency

DATA = Path(__file__).resolve().parents[1] / "src" / "stoker" / "catalogue" / "data"
QUANTILE = 0.90
LEAST_SPREAD = 0.15  # of a known program: machines of one kind differ
MOST_SPREAD = 0.6  # of a family: what is beyond is a program's, not the hardware's
MOST_ERRORS_TO_DOUBT = 9


Bases = Mapping[tuple[str, str], Mapping[str, float]]


def write(
    problem: Problem, fit: Fit, facts: Sequence[Fact], sections: Mapping[str, np.ndarray], efficiency: Efficiency
) -> None:
    """Replace the fitted cells of efficiency.csv, efficiency_constants.csv, stacks.csv and leave_out.csv."""
    values = dict(zip((p.name for p in problem.parameters), fit.values, strict=True))
    bases = {
        (row.family, row.dtype): {name: getattr(row, name) for name in ("wave_outputs", "host_s_per_kernel")}
        for row in efficiency.speeds
    }
    families = _family_spreads(facts, sections["model left out"], sections["GPU left out"])
    _write_speeds(values, families, bases)
    _write_constants(values)
    _write_stacks(values, facts, sections)
    rows = []
    for source in sorted({fact.source for fact in facts}):
        members = [index for index, fact in enumerate(facts) if fact.source == source]
        rows += _left_out(source, refit_without(problem, fit, members), bases)
    _write_left_out(rows)


def spread_of(errors: np.ndarray) -> float:
    """Share s such that measured lies within predicted / (1 + s) and predicted x (1 + s) at 90 %."""
    known = np.abs(errors[~np.isnan(errors)])
    return exp(float(np.quantile(known, QUANTILE))) - 1.0 if len(known) else float("nan")


def _family_spreads(facts: Sequence[Fact], models: np.ndarray, gpus: np.ndarray) -> dict[tuple[str, str], float]:
    """By family and format: what models and GPUs that the fit had not seen were missed by."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for fact, a, b in zip(facts, models, gpus, strict=True):
        found[fact.family] += [e for e in (a, b) if not np.isnan(e)]
    return {
        family: max(spread_of(np.array(errors)), LEAST_SPREAD) for family, errors in found.items() if len(errors) > 9
    }


def _read(name: str) -> tuple[list[str], list[dict[str, str]]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    return list(reader.fieldnames or []), rows


def _save(name: str, columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> None:
    with (DATA / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _write_speeds(values: Mapping[str, float], spreads: Mapping[tuple[str, str], float], bases: Bases) -> None:
    columns, rows = _read("efficiency.csv")
    for row in rows:
        for name in ("matmul_frac", "attention_frac"):
            key = f"{row['family']}/{row['dtype']}/{name}"
            if key in values:
                row[name] = f"{values[key]:.3g}"
        for name in ("wave_outputs", "host_s_per_kernel"):
            if row["family"] != "cpu":
                row[name] = f"{bases[row['family'], row['dtype']][name] * values[f'*/{name}']:.3g}"
        if (row["family"], row["dtype"]) in spreads:
            row["spread_frac"] = f"{spreads[row['family'], row['dtype']]:.2f}"
    _save("efficiency.csv", columns, rows)


def _write_constants(values: Mapping[str, float]) -> None:
    columns, rows = _read("efficiency_constants.csv")
    for row in rows:
        if row["name"] in values:
            row["value"] = f"{values[row['name']]:.4g}"
    _save("efficiency_constants.csv", columns, rows)


def _write_stacks(values: Mapping[str, float], facts: Sequence[Fact], sections: Mapping[str, np.ndarray]) -> None:
    columns, rows = _read("stacks.csv")
    unseen = _source_spread(facts, sections["source left out"])
    for row in rows:
        name = row["name"]
        if row["source"] == "*":
            row["time_factor"], row["time_spread_frac"] = f"{values['stack/*']:.3g}", f"{unseen:.2f}"
        elif f"stack/{name}" in values and name != "stoker":
            row["time_factor"] = f"{values['stack/*'] * values[f'stack/{name}']:.3g}"
            errors = [
                e
                for section in ("model left out", "GPU left out")
                for fact, e in zip(facts, sections[section], strict=True)
                if fact.stack == name and not np.isnan(e)
            ]
            row["time_spread_frac"] = (
                f"{max(spread_of(np.array(errors)), LEAST_SPREAD):.2f}" if len(errors) > MOST_ERRORS_TO_DOUBT else ""
            )
    _save("stacks.csv", columns, rows)


def _source_spread(facts: Sequence[Fact], errors: np.ndarray) -> float:
    """The same for programs that nobody described, each source weighing alike."""
    sources = sorted({fact.source for fact in facts if fact.source != OWN})
    pools = [np.array([e for e, f in zip(errors, facts, strict=True) if f.source == s]) for s in sources]
    drawn = [np.quantile(np.abs(pool[~np.isnan(pool)]), np.linspace(0.005, 0.995, 100)) for pool in pools if len(pool)]
    return exp(float(np.quantile(np.concatenate(drawn), QUANTILE))) - 1.0


def _left_out(source: str, values: Mapping[str, float], bases: Bases) -> list[dict[str, str]]:
    rows = []
    for (family, dtype), base in bases.items():
        for name, value in base.items():
            if family != "cpu":
                constant = f"speeds.{family}.{dtype}.{name}"
                rows.append({"source": source, "constant": constant, "value": f"{value * values[f'*/{name}']:.4g}"})
    for name, value in values.items():
        if name == "stack/*":
            constant = "stacks.*.time_factor"
        elif name.startswith(("stack/", "*/", "own/")):
            continue
        elif "/" in name:
            constant = "speeds." + name.replace("/", ".")
        else:
            constant = f"constants.{name}"
        rows.append({"source": source, "constant": constant, "value": f"{value:.4g}"})
    return rows


def _write_left_out(rows: Sequence[Mapping[str, str]]) -> None:
    """Rows of the speed fit replaced, those of the memory fit kept."""
    columns, old = _read("leave_out.csv")
    ours = {row["constant"] for row in rows}
    kept = [row for row in old if row["constant"] not in ours]
    _save("leave_out.csv", columns, [*rows, *kept])
