"""The scores of a release, kept so that the next `stoker validate` shows its trend against them.

    python tools/release_scores.py RELEASE [--date YYYY-MM-DD]

Runs `stoker validate --json` over the facts that ship, without this machine's corrections, and replaces the rows of
RELEASE in src/stoker/catalogue/data/validation_trend.csv (shares, not per cent). Run it when a version is tagged.
"""

import argparse
import csv
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "src" / "stoker" / "catalogue" / "data" / "validation_trend.csv"
COLUMNS = ("release", "date", "quantity", "source", "median", "p90", "n")
QUANTITIES = ("memory", "step_time", "total_time")


def scores() -> list[tuple[str, str, float, float, int]]:
    """(quantity, source, median, p90, n) of this tree."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": cache}
        command = [sys.executable, "-m", "stoker", "validate", "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    summary = json.loads(done.stdout)["summary"]
    return [
        (quantity, source, score["median"], score["p90"], score["n"])
        for quantity in QUANTITIES
        for source, score in sorted(summary.get(quantity, {}).get("by_source", {}).items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("release")
    parser.add_argument("--date", default=datetime.datetime.now(datetime.UTC).date().isoformat())
    options = parser.parse_args()
    kept: list[list[str]] = []
    if FILE.is_file():
        with FILE.open(encoding="utf-8", newline="") as stream:
            kept = [row for row in csv.reader(stream) if row and row[0] not in ("release", options.release)]
    rows = [
        [options.release, options.date, quantity, source, f"{middle:.4f}", f"{p90:.4f}", str(count)]
        for quantity, source, middle, p90, count in scores()
    ]
    with FILE.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([COLUMNS, *kept, *rows])
    print(f"{len(rows)} scores of {options.release} in {FILE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
