"""Measured facts of the literature that ship, one row a figure, each with source and date.

data/measurements.csv: what `stoker validate` scores without arguments, and what the speed and memory constants are
judged by; tools/curate_measurements.py chooses and names the rows. data/measurements_independent.csv (memory) and
measurements_independent_time.csv (speed): sources that no constant was fitted on, in the words that their tables use.
"""

import functools
from dataclasses import fields
from typing import Any

from stoker.catalogue.tables import number, read_rows, whole
from stoker.core.measurement import Measurement

_WHOLE = ("num_params", "num_gpus", "micro_batch_size", "global_batch_size", "seq_len")
_NUMBERS = ("value", "gpu_gb")


@functools.cache
def all_measurements() -> tuple[Measurement, ...]:
    """Every row, in order; `line` is its line in the file."""
    return _measurements("measurements.csv")


@functools.cache
def independent_measurements() -> tuple[Measurement, ...]:
    """The rows of sources that nothing was fitted on (role holdout)."""
    return _measurements("measurements_independent.csv") + _measurements("measurements_independent_time.csv")


def _measurements(name: str) -> tuple[Measurement, ...]:
    return tuple(_measurement(row, line) for line, row in enumerate(read_rows(name), start=2))


def as_columns(measurement: Measurement) -> dict[str, str]:
    """A row's cells by column, as the file has them."""
    return {
        entry.name: "" if (value := getattr(measurement, entry.name)) is None else f"{value}"
        for entry in fields(Measurement)
        if entry.name != "line"
    }


def _measurement(row: dict[str, str], line: int) -> Measurement:
    values: dict[str, Any] = {}
    for entry in fields(Measurement):
        cell = row.get(entry.name, "")
        if entry.name in _WHOLE:
            values[entry.name] = whole(cell)
        elif entry.name in _NUMBERS:
            values[entry.name] = number(cell)
        elif entry.name != "line":
            values[entry.name] = cell
    return Measurement(**values, line=line)
