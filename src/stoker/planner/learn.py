"""learn: what finished runs measured goes into this machine's corrections, so that the next plan here is calibrated."""

import datetime
from collections.abc import Iterable
from pathlib import Path

from stoker.catalogue.efficiency import write_corrections
from stoker.core.efficiency import Correction
from stoker.core.record_io import read_record
from stoker.estimators.calibrate import corrections


def learn(runs: Iterable[Path | str], *, file: Path | None = None) -> tuple[Correction, ...]:
    """Read the records of `runs` (run folders), keep their corrections in `file` (default: this user's), return them.

    Empty where no run told anything: too few steps, or another device than planned. Raises RecordError for a folder
    without a readable record, OSError where the file cannot be written.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    found = corrections([read_record(run) for run in runs], date=now)
    if found:
        write_corrections(found, file)
    return found
