"""`stoker validate`: the shipped facts, a table of the public schema, own runs; JSON as documented; exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.core.errors import RecordError
from stoker.validation.own import own_rows, run_folders
from stoker.validation.table import read_table

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ROOT.parent / "shared" / "data" / "validation" / "measured.csv"
RECORDS = ROOT / "benchmarks" / "records" / "2026-11-30-h200"
HEADER = "source,model,gpu,metric,value,method,precision,n_gpus,micro_batch,seq_len,unit,quality\n"
KEYS = {"metric", "measured", "predicted", "low", "high", "fit_probability", "unit", "quality", "not_scored"}


def stoker(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stoker", "validate", *arguments],
        capture_output=True,
        encoding="utf-8",
        cwd=cwd,
        env={**os.environ, "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8"},
    )


def test_without_arguments_the_shipped_facts_are_scored(tmp_path: Path) -> None:
    done = stoker("--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert len(document["rows"]) >= 200
    assert all(set(row) >= KEYS and {"source", "model", "gpu"} <= set(row) for row in document["rows"])
    summary = document["summary"]
    assert {"memory", "step_time", "fit", "rank"} <= set(summary)
    assert len(summary["memory"]["by_source"]) >= 5
    assert summary["step_time"]["overall"]["sources"] >= 8
    assert document["own_runs"] == []


def test_a_table_prints_scores_and_reasons(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(
        HEADER
        + "x,llama-2-7b,A100-80GB-SXM,peak_mem_gb,20,lora,bf16,1,1,512,GiB,measured\n"
        + "x,nobody-knows,A100-80GB-SXM,peak_mem_gb,20,lora,bf16,1,1,512,GiB,measured\n"
    )
    done = stoker("--rows", str(file))
    assert done.returncode == 0
    assert "1 of 2 rows scored" in done.stdout
    assert "model nobody-knows: not known" in done.stdout
    assert "source: x" in done.stdout


def test_nothing_scored_is_exit_5_and_a_bad_table_exit_2(tmp_path: Path) -> None:
    unknown, bad = tmp_path / "unknown.csv", tmp_path / "bad.csv"
    unknown.write_text(HEADER + "x,nobody-knows,A100-80GB-SXM,peak_mem_gb,20,lora,bf16,1,1,512,GiB,measured\n")
    bad.write_text("a,b\n1,2\n")
    assert stoker("--rows", str(unknown)).returncode == 5
    done = stoker("--rows", str(bad))
    assert done.returncode == 2
    assert "ST611" in done.stderr and not done.stdout


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            HEADER.replace("quality", "value") + "x,llama-2-7b,L4,peak_mem_gb,20,lora,bf16,1,1,512,GiB,30\n",
            "ST614",
            "value",
        ),
        # the quote opens in line 2 and takes line 3 into its cell
        (
            HEADER + 'x,"llama,L4,peak_mem_gb,20,lora,bf16,1,1,512,GiB,measured\n' + "y,b,c,d,1,f,g,1,1,1,k,l\n",
            "ST613",
            ":2",
        ),
        (HEADER.replace(",", ";") + "x;llama-2-7b\n", "ST611", "commas"),
    ],
)
def test_a_table_that_says_two_things_is_refused(tmp_path: Path, text: str, code: str, said: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(text)
    with pytest.raises(RecordError) as caught:
        read_table(file)
    assert caught.value.code == code and said in str(caught.value)


def test_what_is_no_file_is_called_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="folder"):
        read_table(tmp_path)


def test_a_comma_is_read_as_thousands_or_not_at_all(tmp_path: Path) -> None:
    """1,5 is one and a half in half of Europe; read as 15 it would be scored ten times too large."""
    file = tmp_path / "rows.csv"
    file.write_text(
        HEADER
        + 'x,llama-2-7b,L4,tokens_per_s_per_gpu,"1,234.5",lora,bf16,1,1,512,tokens/s,measured\n'
        + 'x,llama-2-7b,L4,peak_mem_gb,"1,5",lora,bf16,1,1,512,GB,measured\n'
    )
    thousands, decimal = read_table(file)
    assert thousands.measurement is not None and thousands.measurement.value == 1234.5
    assert decimal.measurement is None and "no number" in decimal.problem


@pytest.mark.parametrize("cell", ["0", "-1", "nan", "inf", "1e400", "1e-300", "1e300", "abc", "0x10"])
def test_a_value_that_nothing_can_have_keeps_its_row_out(tmp_path: Path, cell: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(HEADER + f"x,llama-2-7b,L4,peak_mem_gb,{cell},lora,bf16,1,1,512,GB,measured\n")
    (row,) = read_table(file)
    assert row.measurement is None and "column value" in row.problem


def test_left_out_predicts_as_if_the_source_were_new(tmp_path: Path) -> None:
    """LitGPT's loss works on 16-bit logits; who does not know that expects the wider one of a usual trainer."""
    file = tmp_path / "rows.csv"
    file.write_text(HEADER + "litgpt,llama-2-7b,A100-80GB-SXM,peak_mem_gb,20,lora,bf16-true,1,4,2048,GB,measured\n")
    seen, unseen = (json.loads(stoker("--rows", str(file), "--json", *flags).stdout) for flags in ((), ("--left-out",)))
    assert unseen["left_out"] and not seen["left_out"]
    assert unseen["rows"][0]["predicted"] != seen["rows"][0]["predicted"]


def test_left_out_with_its_program_known_keeps_the_facts_and_drops_the_factor(tmp_path: Path) -> None:
    """What LitGPT's code does stays known, so its memory does; the factor that its step times taught goes."""
    file = tmp_path / "rows.csv"
    row = "litgpt,llama-2-7b,A100-40GB-SXM,{metric},20,lora,bf16-true,1,1,512,{unit},measured\n"
    file.write_text(HEADER + row.format(metric="peak_mem_gb", unit="GB") + row.format(metric="step_time_s", unit="s"))
    seen = json.loads(stoker("--rows", str(file), "--json").stdout)["rows"]
    known = json.loads(stoker("--rows", str(file), "--json", "--left-out").stdout)["left_out_described"]["rows"]
    assert known[0]["predicted"] == pytest.approx(seen[0]["predicted"], rel=0.05)
    assert known[1]["predicted"] != seen[1]["predicted"]


def test_own_runs_stand_with_role_and_error() -> None:
    """The records of benchmarks/h200: the first run of each stack calibrates, all measured step times are there."""
    rows = own_rows(run_folders(RECORDS))
    steps = [row for row in rows if row.metric == "step_time_s" and row.measured is not None]
    assert len(steps) >= 3
    assert {row.role for row in steps} <= {"calibration", "holdout"}
    assert all(row.error is not None and row.error < 1.0 for row in steps)
    kcelectra = next(row for row in steps if row.run.endswith("kcelectra-epoch"))
    assert kcelectra.measured == pytest.approx(0.049, rel=0.05)  # 49 ms a step (benchmarks/LOG.md)


def test_a_folder_without_a_record_is_excluded_not_skipped(tmp_path: Path) -> None:
    done = stoker("--records", str(tmp_path), "--json", cwd=tmp_path)
    (row,) = json.loads(done.stdout)["own_runs"]
    assert row["role"] == "excluded" and row["reason"]


@pytest.mark.skipif(not PUBLIC.exists(), reason="the public rows are not here")
def test_the_public_rows_all_have_a_prediction_or_a_reason() -> None:
    done = stoker("--rows", str(PUBLIC), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    rows = document["rows"]
    assert len(rows) == 1614
    assert all((row["predicted"] is None) == (row["not_scored"] is not None) for row in rows)
    assert all(row["low"] <= row["predicted"] <= row["high"] for row in rows if row["predicted"] is not None)
    unknown = [row for row in rows if row["not_scored"] and "not known" in row["not_scored"]]
    assert len(unknown) <= 0.1 * len(rows)
    for name in ("memory", "step_time"):
        overall = document["summary"][name]["overall"]
        print(name, {key: round(overall[key], 3) for key in ("n", "median", "p90", "covered", "above_high")})
