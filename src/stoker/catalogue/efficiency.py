"""Efficiency from disk: the fitted tables that ship, and the corrections that own runs left on this machine.

Tables: `data/efficiency.csv` (shares and launches by family and number format), `efficiency_framework.csv` (bytes
outside tensors), `efficiency_constants.csv` (everything else, with unit); each row has its source and date.
Corrections live in `efficiency.json` in the user's cache folder for stoker (platformdirs).
"""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from stoker.catalogue.tables import read_rows
from stoker.core.codec import decode, dumps, loads
from stoker.core.efficiency import Correction, Efficiency, FrameworkBytes, SpeedShares
from stoker.core.estimate import Source
from stoker.core.units import MIB

_MOST_FACTOR = 1e4  # measured over predicted; beyond it the file is damaged or edited, and a plan would break
_MOST_START_S = 1e6


def load_efficiency(corrections: Path | None = None) -> Efficiency:
    """The tables that ship, and this machine's corrections (`corrections`: another file). Never raises for those."""
    rows = list(read_rows("efficiency_constants.csv"))
    return Efficiency(
        speeds=tuple(_speed(row) for row in read_rows("efficiency.csv")),
        frameworks=tuple(_framework(row) for row in read_rows("efficiency_framework.csv")),
        constants={row["name"]: float(row["value"]) for row in rows},
        constant_sources={row["name"]: Source(row["source"]) for row in rows},
        corrections=read_corrections(corrections or corrections_path()),
    )


def corrections_path() -> Path:
    """File of this user's corrections, in the platform's cache folder for stoker."""
    from platformdirs import user_cache_path

    return user_cache_path("stoker", appauthor=False) / "efficiency.json"


def read_corrections(path: Path) -> tuple[Correction, ...]:
    """Corrections of `path`; none where the file is absent or unreadable (a plan must not fail for it).

    A row that is broken, or that no measurement can have left, is passed over; the others hold.
    """
    try:
        rows = list(loads(path.read_text(encoding="utf-8"))["corrections"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return tuple(found for row in rows if (found := _correction(row)) is not None)


def _correction(row: object) -> Correction | None:
    try:
        found: Correction = decode(Correction, row)
    except (ValueError, TypeError):
        return None
    factors = (found.time_factor, found.memory_factor, *found.memory_parts.values())
    start_s = found.start_s if found.start_s is not None else 0.0
    plausible = all(1.0 / _MOST_FACTOR <= factor <= _MOST_FACTOR for factor in factors)
    return found if plausible and 0.0 <= start_s <= _MOST_START_S else None


def write_corrections(corrections: Iterable[Correction], path: Path | None = None) -> Path:
    """Merge `corrections` into the file, the newer of a key winning, and replace it in one rename. Returns its path."""
    target = path or corrections_path()
    target.parent.mkdir(parents=True, exist_ok=True)
    merged = {correction.key: correction for correction in (*read_corrections(target), *corrections)}
    text = dumps({"schema_version": 1, "corrections": list(merged.values())}, indent=1)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".efficiency-", suffix=".json")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def _speed(row: dict[str, str]) -> SpeedShares:
    return SpeedShares(
        family=row["family"],
        dtype=row["dtype"],
        matmul_frac=float(row["matmul_frac"]),
        attention_frac=float(row["attention_frac"]),
        memory_frac=float(row["memory_frac"]),
        wave_outputs=float(row["wave_outputs"]),
        full_power_w_per_tflop=float(row["full_power_w_per_tflop"]),
        kernel_s=float(row["kernel_s"]),
        host_s_per_kernel=float(row["host_s_per_kernel"]),
        spread_frac=float(row["spread_frac"]),
        source=Source(row["source"]),
        origin=row["origin"],
        date=row["date"],
    )


def _framework(row: dict[str, str]) -> FrameworkBytes:
    return FrameworkBytes(
        family=row["family"],
        context_bytes=int(row["context_mib"]) * MIB,
        workspace_bytes=int(row["workspace_mib"]) * MIB,
        communicator_bytes=int(row["communicator_mib"]) * MIB,
        source=Source(row["source"]),
        origin=row["origin"],
        date=row["date"],
    )
