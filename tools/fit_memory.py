"""Fit the allocator's shares and the spreads of memory estimates; refit with each source left out; print the errors.

Usage: python tools/fit_memory.py [--rows FILE.csv ...] [--write]

Facts: peaks of the rows that ship (catalogue/data/measurements.csv), of any table of the public schema, and of our own
grid on an H200 (full tuning only: under adapters its reserved bytes are those of loading in fp32). Free are few:
`slack_crossing` (programs without expandable segments), `slack_expandable` (those with), `slack_unordered`
(batches padded in the order of the data), each the value with the least bounded mean error of reserved bytes;
and `spread_dynamic`, the least for which at most 2 % of the public rows exceed the high bound. Sources weigh alike.
`slack_uneven` comes from three runs of this engine and is held by tests/golden/test_own_runs.py.

`--write` replaces the fitted cells, and of data/leave_out.csv the rows of these constants.
"""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path

from fit_facts import GRID, OWN, grid_facts

from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.measurements import all_measurements
from stoker.core.efficiency import Efficiency
from stoker.core.measurement import Measurement
from stoker.core.units import GB
from stoker.estimators.memory import estimate_memory
from stoker.estimators.scenario import Scenario
from stoker.validation.predict import Prediction, memory_in, predict, reading_of
from stoker.validation.table import read_table
from stoker.validation.trial import Trial, build_trial

DATA = Path(__file__).resolve().parents[1] / "src" / "stoker" / "catalogue" / "data"
SHARES = {  # name: least, most, steps, and what stands where no fact tells: nothing lost to shapes, the pool lost whole
    "slack_crossing": (0.3, 1.1, 17, 1.0),
    "slack_expandable": (0.0, 0.10, 11, 0.0),
    "slack_unordered": (0.0, 3.0, 16, 0.0),
}
SPREADS = tuple(round(0.08 + 0.01 * i, 2) for i in range(15))
BOUND = 0.3  # of a logarithm: a row further off says that something else is wrong
PULL = 0.0015  # of the mean error over the whole range: decides only where the facts hardly tell
EXCEEDED = 0.018  # share of rows above the high bound that is allowed: two in a hundred, with room for the unseen


@dataclass(frozen=True, slots=True)
class Fact:
    """A measured peak and the scenario that predicts it. `reserved`: whether slack is in the reading."""

    measurement: Measurement
    scenario: Scenario
    reserved: bool
    trial: Trial | None = None  # None: a cell of our own grid

    @property
    def source(self) -> str:
        return self.measurement.source


def facts_of(paths: Iterable[Path], efficiency: Efficiency, *, unseen: bool = False) -> list[Fact]:
    """Every peak that can be predicted, several readings of a run and a quantity once."""
    rows = [row.measurement for path in paths for row in read_table(path) if row.measurement is not None]
    told = {(m.source, f"{m.value:.4g}") for m in rows}
    shipped = [m for m in all_measurements() if (m.source, f"{m.value:.4g}") not in told]
    found: dict[tuple[object, ...], Fact] = {}
    for measurement in (*rows, *shipped):
        key = (measurement.run, measurement.unit, measurement.value)
        if measurement.metric != "peak_mem_gb" or measurement.quality == "suspect" or key in found:
            continue
        trial = build_trial(measurement, efficiency, unseen=(measurement.source,) if unseen else ())
        if isinstance(trial, Trial):
            reading = reading_of(measurement.unit, trial.scenario.stack.memory_reading)
            found[key] = Fact(measurement, trial.scenario, reading != "allocated", trial)
    return [*found.values(), *_own_facts(efficiency)]


def _own_facts(efficiency: Efficiency) -> Iterator[Fact]:
    cells = [cell for cell in json.loads(GRID.read_text(encoding="utf-8"))["cells"] if "median_step_s" in cell]
    for cell, timed in zip(cells, grid_facts(GRID, efficiency), strict=True):
        for reading in ("allocated", "reserved"):
            if reading == "reserved" and cell["method"] != "full":
                continue
            measurement = Measurement(
                source=OWN,
                table=GRID.name,
                model=cell["model"],
                metric="peak_mem_gb",
                value=cell[f"peak_{reading}_bytes"] / 1e9,
                unit=f"GB ({reading})",
            )
            yield Fact(measurement, timed.scenario, reading == "reserved")


def predicted(fact: Fact, efficiency: Efficiency) -> tuple[float, float]:
    """(expected, high) of `fact` from `efficiency`, in its unit."""
    scenario = replace(fact.scenario, efficiency=efficiency)
    if fact.trial is not None:
        prediction = predict(replace(fact.trial, scenario=scenario))
        assert isinstance(prediction, Prediction)
        return prediction.expected, prediction.high
    estimate = estimate_memory(scenario)
    expected = memory_in(estimate, "reserved" if fact.reserved else "allocated") / GB
    return expected, expected * estimate.high_bytes / estimate.expected_bytes


def with_constants(efficiency: Efficiency, values: dict[str, float]) -> Efficiency:
    """`efficiency` with some constants replaced."""
    return replace(efficiency, constants={**efficiency.constants, **values})


def mean_error(facts: Sequence[Fact], efficiency: Efficiency) -> float:
    """Mean of |log(predicted / measured)|, each at most BOUND, every source weighing alike."""
    groups: dict[str, list[float]] = defaultdict(list)
    for fact in facts:
        error = abs(log(predicted(fact, efficiency)[0] / fact.measurement.value))
        groups[fact.source].append(min(error, BOUND))
    return sum(sum(errors) / len(errors) for errors in groups.values()) / len(groups)


def hangs_on(name: str, fact: Fact) -> bool:
    """Whether the reading of `fact` changes with the share `name`."""
    stack = fact.scenario.stack
    if not fact.reserved:
        return False
    if name == "slack_expandable":
        return stack.expandable_segments
    uneven = fact.scenario.lengths.maximum > 1.05 * fact.scenario.lengths.mean
    unordered = stack.pads_by_batch and uneven
    return not stack.expandable_segments and unordered == (name == "slack_unordered")


def fit(facts: Sequence[Fact], efficiency: Efficiency) -> dict[str, float]:
    """The constants; one that no fact tells about gets its prior."""
    values: dict[str, float] = {}
    for name, (least, most, steps, prior) in SHARES.items():
        telling = [fact for fact in facts if hangs_on(name, fact)]
        if not telling:
            values[name] = prior
            continue
        tried = [round(least + (most - least) * i / (steps - 1), 4) for i in range(steps)]
        pulled = {
            v: mean_error(telling, with_constants(efficiency, {**values, name: v}))
            + PULL * abs(v - prior) / (most - least)
            for v in tried
        }
        values[name] = min(pulled, key=pulled.__getitem__)
    public = [fact for fact in facts if fact.source != OWN]
    values["spread_dynamic"] = next(
        (
            s
            for s in SPREADS
            if exceeded(public, with_constants(efficiency, {**values, "spread_dynamic": s})) < EXCEEDED
        ),
        SPREADS[-1],
    )
    return {name: round(value, 4) for name, value in values.items()}


def exceeded(facts: Sequence[Fact], efficiency: Efficiency) -> float:
    """Share of the facts whose measured value is above the high bound."""
    return sum(predicted(f, efficiency)[1] < f.measurement.value for f in facts) / max(len(facts), 1)


def table(name: str, facts: Sequence[Fact], by_source: dict[str, Efficiency], usual: Efficiency) -> None:
    """Errors by source: n, median, 90 %, ratio, rows above high, median high over expected."""
    groups: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for fact in facts:
        expected, high = predicted(fact, by_source.get(fact.source, usual))
        measured = fact.measurement.value
        groups[fact.source].append((expected / measured, high / measured, high / expected))
    print(f"\n{name:28}    n  median    p90  ratio  >high  high/expected")
    groups["(all rows)"] = [row for rows in list(groups.values()) for row in rows]
    for source, rows in groups.items():
        errors = sorted(abs(ratio - 1.0) for ratio, _high, _width in rows)
        ratios, widths = sorted(r[0] for r in rows), sorted(r[2] for r in rows)
        above = sum(high < 1.0 for _ratio, high, _width in rows) / len(rows)
        middle, late = len(rows) // 2, min(int(0.9 * len(rows)), len(rows) - 1)
        shares = f"{errors[middle]:6.1%} {errors[late]:6.1%}  {ratios[middle]:.2f} {above:6.1%}  {widths[middle]:.2f}"
        print(f"{source[:28]:28} {len(rows):4} {shares}")


def write(values: dict[str, float], left_out: dict[str, dict[str, float]]) -> None:
    """The constants into efficiency_constants.csv, those of each left-out source into leave_out.csv."""
    path = DATA / "efficiency_constants.csv"
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        if row["name"] in values:
            row["value"] = f"{values[row['name']]:g}"
    _write_rows(path, list(rows[0]), rows)
    path = DATA / "leave_out.csv"
    with path.open(newline="", encoding="utf-8") as stream:
        kept = [row for row in csv.DictReader(stream) if row["constant"].removeprefix("constants.") not in values]
    ours = [
        {"source": source, "constant": f"constants.{name}", "value": f"{value:g}"}
        for source, fitted in sorted(left_out.items())
        for name, value in fitted.items()
    ]
    _write_rows(path, ["source", "constant", "value"], [*kept, *ours])


def _write_rows(path: Path, names: list[str], rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Fit, refit with each source left out, print, and write where asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=Path, action="append", default=[])
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    efficiency = replace(load_efficiency(), corrections=())
    facts = facts_of(arguments.rows, efficiency)
    values = fit(facts, efficiency)
    left_out = {s: fit([f for f in facts if f.source != s], efficiency) for s in sorted({f.source for f in facts})}
    print(values)
    for source, fitted in left_out.items():
        print(f"  without {source[:28]:28} {fitted}")
    usual = with_constants(efficiency, values)
    without = {source: with_constants(efficiency, fitted) for source, fitted in left_out.items()}
    table("in the fit", facts, {}, usual)
    table("constants never saw source", facts, without, usual)
    table("program undescribed too", facts_of(arguments.rows, efficiency, unseen=True), without, usual)
    if arguments.write:
        write(values, left_out)


if __name__ == "__main__":
    main()
