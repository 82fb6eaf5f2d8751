"""Memory predictors side by side on public measured rows: each peer by its own package in its own environment.

    python benchmarks/peers/run.py --rows ../shared/data/validation/measured.csv --venvs /tmp/peers

`benchmarks/peers/setup.sh DIR` makes the environments. Prints the README's table (Markdown) and writes the record;
`--readme` also puts the table between the marks of README.md and README.ko.md.
"""

import argparse
import csv
import datetime
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import asked, read_cases
from score import on_common, score

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """`adapter` and `venv`: names of the script here and of the environment; `package`: whose version is shown."""

    title: str
    package: str
    adapter: str
    venv: str
    note: str = ""


PEERS = (
    Peer(title="accelerate estimate-memory", package="accelerate", adapter="ask_accelerate.py", venv="torch"),
    Peer(
        title="DeepSpeed ZeRO estimators", package="deepspeed", adapter="ask_deepspeed.py", venv="torch",
        note="model states only",
    ),
    Peer(
        title="fitcheck-llm", package="fitcheck-llm", adapter="ask_fitcheck.py", venv="fitcheck",
        note="its own constants are fitted on the fitcheck rows",
    ),
    Peer(title="ftuneai", package="ftuneai", adapter="ask_ftuneai.py", venv="ftuneai"),
    Peer(title="canifinetune", package="canifinetune", adapter="ask_canifinetune.py", venv="canifinetune"),
    Peer(title="train-in-silence", package="train-in-silence", adapter="ask_train_in_silence.py", venv="silence"),
    Peer(title="llm-analysis", package="llm-analysis", adapter="ask_llm_analysis.py", venv="llm_analysis"),
)  # fmt: skip


def ask(peer: Peer, venvs: Path, payload: str) -> dict[str, Any]:
    """The peer's answers, in the order of the cases."""
    python = venvs / peer.venv / "bin" / "python"
    with tempfile.TemporaryDirectory() as empty:  # so that nothing of this repository is imported by accident
        done = subprocess.run(
            [python, "-W", "ignore", _HERE / peer.adapter], input=payload, capture_output=True, text=True, cwd=empty
        )
    if done.returncode:
        raise SystemExit(f"{peer.title} failed:\n{done.stderr[-2000:]}")
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def ask_stoker(rows: Path, cases: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """stoker's own expected bytes, from `stoker validate --rows FILE --json`, uncalibrated as it ships."""
    command = [sys.executable, "-m", "stoker", "validate", "--rows", str(rows), "--json"]
    with tempfile.TemporaryDirectory() as fresh:
        done = subprocess.run(command, capture_output=True, text=True, env={**_environment(), "XDG_CACHE_HOME": fresh})
    try:
        answers = json.loads(done.stdout)["rows"]
    except (ValueError, KeyError):
        raise SystemExit(f"stoker validate failed:\n{done.stderr[-2000:]}") from None
    with rows.open(encoding="utf-8", newline="") as stream:
        table = list(csv.DictReader(stream))
    ratios: dict[tuple[str, ...], float] = {}
    for answer in answers:
        if answer.get("predicted") and answer.get("measured"):
            ratios[tuple(str(answer.get(name) or "") for name in _IDENTITY)] = answer["predicted"] / answer["measured"]
    found: list[float | None] = []
    for case in cases:
        value: float | None = None
        for number in case["rows"]:
            key = tuple(table[number][name] for name in _IDENTITY)
            if key in ratios:
                scale = 2**30 if table[number]["unit"].startswith("GiB") else 10**9
                value = ratios[key] * float(table[number]["value"]) * scale
                break
        found.append(value)
    return found


_FITTED_BY_A_PEER = "fitcheck"  # rows that fitcheck-llm's authors measured, and fitted their constants on
_IDENTITY = (
    *("source", "path_or_table", "model", "method", "precision", "gpu", "n_gpus", "strategy", "micro_batch"),
    *("global_batch", "seq_len", "act_ckpt", "flash_attn", "metric", "value", "notes", "unit"),
)


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "STOKER_LANG": "en", "OMP_NUM_THREADS": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True, help="measured rows, columns of the public schema")
    parser.add_argument("--venvs", type=Path, required=True, help="folder of the peers' environments (setup.sh)")
    parser.add_argument("--out", type=Path, help="the record (default: benchmarks/records/DATE-peers.json)")
    parser.add_argument("--date", default=datetime.datetime.now(datetime.UTC).date().isoformat())
    parser.add_argument("--readme", action="store_true", help="renew the table of both READMEs")
    parser.add_argument("--without-stoker", action="store_true", help="peers only")
    options = parser.parse_args()

    cases = read_cases(options.rows)
    payload = json.dumps(list(asked(cases)))
    own = [None] * len(cases) if options.without_stoker else ask_stoker(options.rows.resolve(), cases)
    record: dict[str, Any] = {
        "workload": "memory of public measured rows",
        "engine": "peers",
        "date": options.date,
        "commit": _commit(),
        "readings": len(cases),
        "rows_file": options.rows.name,
        "stoker": score(cases, own),
        "peers": [],
    }
    for peer in PEERS:
        answers = ask(peer, options.venvs, payload)
        predicted = [answer.get("bytes") for answer in answers["answers"]]
        theirs, ours = on_common(cases, predicted, own)
        elsewhere = [i for i, case in enumerate(cases) if not case["source"].startswith(_FITTED_BY_A_PEER)]
        others = [cases[i] for i in elsewhere]
        they, we = on_common(others, [predicted[i] for i in elsewhere], [own[i] for i in elsewhere])
        reasons = Counter(answer["not_offered"] for answer in answers["answers"] if "not_offered" in answer)
        record["peers"].append(
            {
                "title": peer.title,
                "note": peer.note,
                "versions": answers["versions"],
                "version": answers["versions"][peer.package],
                "alone": score(cases, predicted),
                "common": {"rows": theirs["offered"], "peer": theirs, "stoker": ours},
                "common_elsewhere": {"rows": they["offered"], "peer": they, "stoker": we},
                "not_offered": dict(reasons.most_common()),
            }
        )
    out = options.out or _ROOT / "benchmarks" / "records" / f"{options.date}-peers.json"
    out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(table_of(record))
    if options.readme:
        for name, heads in _HEADS.items():
            file = _ROOT / name
            file.write_text(_between_marks(file.read_text(encoding="utf-8"), table_of(record, heads)), encoding="utf-8")


def _between_marks(text: str, table: str) -> str:
    begin, end = "<!-- peers: made by benchmarks/peers/run.py -->", "<!-- peers end -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n\n{table}\n\n{end}{rest.split(end)[1]}"


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=_ROOT)
    return done.stdout.strip()


_HEADS = {
    "README.md": (
        *("predictor", "rows of {readings}", "median", "p90", "under", "mean of sources"),
        *("on common rows: it, stoker", "without fitcheck's own rows: it, stoker"),
    ),
    "README.ko.md": (
        *("예측 도구", "{readings}행 중", "중앙값", "90 %", "과소", "출처별 평균"),
        *("둘 다 예측한 행: 그 도구, stoker", "fitcheck 자체 행 제외: 그 도구, stoker"),
    ),
}


def table_of(record: Mapping[str, Any], heads: Sequence[str] = _HEADS["README.md"]) -> str:
    """The README's table. Under: share of rows predicted too low by more than 10 %."""
    lines = ["| " + " | ".join(heads).format(readings=record["readings"]) + " |", "|---" * len(heads) + "|"]
    for peer in record["peers"]:
        pairs = [_pair(peer[name]) for name in ("common", "common_elsewhere")]
        lines.append(_line(f"{peer['title']} {peer['version']}", peer["alone"], *pairs))
    if record["stoker"]["offered"]:
        lines.append(_line("**stoker**", record["stoker"], "", ""))
    return "\n".join(lines)


def _line(name: str, scores: Mapping[str, Any], *pairs: str) -> str:
    mean = scores["mean_of_sources"]
    cells = (
        name,
        str(scores["offered"]),
        f"{scores['median']:.1%}",
        f"{scores['p90']:.1%}",
        f"{scores['under_share']:.0%}",
        f"{mean['median']:.1%} / {mean['p90']:.1%}",
        *pairs,
    )
    return "| " + " | ".join(cells) + " |"


def _pair(common: Mapping[str, Any]) -> str:
    if not common["rows"]:
        return ""
    it, own = (f"{common[name]['median']:.1%} / {common[name]['p90']:.1%}" for name in ("peer", "stoker"))
    return f"{it}, {own} ({common['rows']})"


if __name__ == "__main__":
    main()
