"""Reading the catalogue's CSV files: UTF-8, one header line, empty cell means unknown. Cached by callers."""

import csv
from collections.abc import Iterator
from pathlib import Path

DATA_DIR = Path(__file__).resolve().parent / "data"


def read_rows(name: str) -> Iterator[dict[str, str]]:
    """The rows of `data/NAME` as mappings of column to text."""
    with (DATA_DIR / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def number(text: str | None) -> float | None:
    """The number in a cell; None where the cell is empty. Raises ValueError for other text."""
    return float(text) if text else None


def whole(text: str | None) -> int | None:
    """The whole number in a cell; None where the cell is empty. Raises ValueError for other text."""
    return int(text) if text else None
