"""The table of recorded runs in benchmarks/README.md, made from benchmarks/records/*.json; nothing in it is typed.

    python tools/benchmark_table.py           renew the table
    python tools/benchmark_table.py --check   exit 1 where the table is not that of the records

A record without a finished run (out of memory, refused) keeps its row: its `status` says what happened.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker.core.human import format_bytes, format_count, format_duration, format_percent
from stoker.core.i18n import set_language
from stoker.report.tables import Column, markdown_table

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "benchmarks" / "records"
README = ROOT / "benchmarks" / "README.md"
BEGIN, END = "<!-- table: tools/benchmark_table.py -->", "<!-- end of table -->"


def table(records: Path = RECORDS) -> str:
    """Markdown table, one row a record, in order of file names (date first)."""
    columns = [
        Column("record"),
        Column("device"),
        Column("ran as"),
        Column("status"),
        Column("steps", "right"),
        Column("step predicted", "right"),
        Column("step measured", "right"),
        Column("off by", "right"),
        Column("total measured", "right"),
        Column("allocated predicted", "right"),
        Column("allocated measured", "right"),
        Column("reserved measured", "right"),
        Column("result"),
    ]
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(records.glob("*.json"))}
    rows = [_row(name, record) for name, record in found.items() if "hardware" in record]  # runs; peers have none
    return markdown_table(columns, rows)


def _row(name: str, record: Mapping[str, Any]) -> list[str]:
    predicted = record.get("predicted") or {}
    step, planned = record.get("median_step_s"), predicted.get("step_s")
    return [
        name,
        str(record["hardware"].get("device", "")),
        _configuration(record.get("config") or {}),
        ": ".join(str(record[key]) for key in ("status", "error") if record.get(key)) or "finished",
        format_count(record.get("steps")),
        format_duration(planned),
        format_duration(step),
        format_percent(planned / step - 1.0, signed=True) if planned and step else "-",
        format_duration(record.get("total_s")),
        format_bytes(predicted.get("peak_allocated_bytes")),
        format_bytes(record.get("peak_allocated_bytes")),
        format_bytes(record.get("peak_reserved_bytes")),
        _result(record.get("metrics") or {}),
    ]


def _configuration(config: Mapping[str, Any]) -> str:
    if not config:
        return "-"
    batch = f"{config['micro_batch_size']}x{config['gradient_accumulation_steps']}"
    return f"{config['precision']} mb{batch} {config['attention']}"


def _result(metrics: Mapping[str, float]) -> str:
    """The test set's F1 where there is one, else the perplexity, else nothing."""
    names = ("test_f1_micro", "test_f1_macro", "perplexity")
    return ", ".join(f"{name} {metrics[name]:.3f}" for name in names if name in metrics) or "-"


def renewed(text: str) -> str:
    """`text` of the README with the table of today's records. Raises ValueError where the marks are missing."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


def main() -> None:
    set_language("en")
    old = README.read_text(encoding="utf-8")
    new = renewed(old)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if new == old else "benchmarks/README.md: run python tools/benchmark_table.py")
    README.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
