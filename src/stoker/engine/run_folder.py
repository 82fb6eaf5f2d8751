"""What a run folder already holds when a run starts: nothing, a run to go on with, a finished one, or another job's.

A record that a damaged disk made unreadable never keeps a run from going on: the checkpoints decide, and the record
is set aside under another name.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from stoker.core.errors import RecordError
from stoker.core.i18n import _
from stoker.core.record import RunRecord
from stoker.core.record_io import read_record
from stoker.engine.export import MODEL_DIR
from stoker.engine.identity import fingerprint, other_job
from stoker.observe.writer import RECORD_NAME

_SET_ASIDE: Final = "ST431"


def finished_record(out_dir: Path, facts: Mapping[str, Any], notice: Callable[[str], None]) -> RunRecord | None:
    """The record of this job's finished run in the folder, else None. The caller holds the lock.

    Raises RunError ST403 naming what differs where the record is another job's.
    """
    file = out_dir / RECORD_NAME
    if not file.is_file():
        return None
    try:
        past = read_record(file)
    except RecordError as error:
        if not _a_killed_start(file):
            notice(f"[{_SET_ASIDE}] {_set_aside(file, error)}")
        return None
    if past.header.get("fingerprint") not in (None, fingerprint(facts)):
        raise other_job(str(out_dir), past.header.get("facts"), facts)
    return past if past.status == "finished" and (out_dir / MODEL_DIR).is_dir() else None


def _a_killed_start(file: Path) -> bool:
    """Whether the record ends inside its first line: what a kill or a power cut leaves of a run's first moment."""
    return b"\n" not in file.read_bytes().rstrip(b"\n\0")


def _set_aside(file: Path, error: RecordError) -> str:
    number = 1
    while (place := file.with_name(f"record.damaged-{number}.jsonl")).exists():
        number += 1
    file.rename(place)
    return _("the record is damaged ({problem}): set aside as {name}, a new one begins").format(
        problem=error.problem, name=place.name
    )
