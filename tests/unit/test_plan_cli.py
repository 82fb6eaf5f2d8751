"""`stoker plan` from a fresh interpreter: within 0.7 s, without torch, with the stated exit codes and streams."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """\
model: {model_type: electra, vocab_size: 54343, embedding_size: 768, hidden_size: 768, num_hidden_layers: 12,
        num_attention_heads: 12, intermediate_size: 3072}
task: text_classification
problem: multi_label
data: {labels: [a, b, c, d, e, f, g, h, i, j], num_samples: 790000, tokens_mean: 18.6, tokens_p99: 64, tokens_max: 458}
train: {epochs: 3, global_batch_size: 64}
hardware: {gpus: [L4, A100-SXM4-40GB, H100-SXM5-80GB, H200-SXM-141GB]}
"""
PROBE = (
    "import resource, sys\n"
    "from stoker.cli.main import main\n"
    "sys.argv = ['stoker', 'plan', sys.argv[1]]\n"
    "try:\n"
    "    main()\n"
    "except SystemExit as stop:\n"
    "    code = stop.code\n"
    "loaded = sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'transformers', 'numpy', 'pyarrow'})\n"
    "used = resource.getrusage(resource.RUSAGE_SELF)\n"
    "print(code, loaded, used.ru_utime + used.ru_stime, file=sys.stderr, sep='|')\n"
)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(JOB, encoding="utf-8")
    return file


def stoker(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stoker", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "STOKER_LANG": "en", **environment},
        check=False,
    )


def test_cold_start_is_within_seven_tenths_of_a_second_and_loads_no_torch(job: Path) -> None:
    """Processor time of the process, so that a busy machine does not fail it; 4 GPU types x 8 counts."""
    seconds = []
    for _attempt in range(3):
        done = subprocess.run(
            [sys.executable, "-c", PROBE, str(job)], capture_output=True, text=True, encoding="utf-8", check=True
        )
        code, loaded, used = done.stderr.strip().splitlines()[-1].split("|")
        assert (code, loaded) == ("0", "[]")
        seconds.append(float(used))
    assert min(seconds) <= 0.7


def test_json_is_one_document_on_stdout_and_talk_is_on_stderr(job: Path, tmp_path: Path) -> None:
    done = stoker("plan", job, "--json", "-o", tmp_path / "plan.json")
    assert done.returncode == 0
    data = json.loads(done.stdout)
    assert data["pick"] == 1
    assert len(data["candidates"]) == 16
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8")) == data
    assert "plan.json" in done.stderr


def test_exit_codes(job: Path, tmp_path: Path) -> None:
    assert stoker("plan", job, "--set", "hardware.hbm_gb=0.5").returncode == 3
    ambiguous = stoker("plan", job, "--set", "hardware.gpus=[H100]")
    assert ambiguous.returncode == 2
    assert "ST301" in ambiguous.stderr and ambiguous.stdout == ""
    assert stoker("plan", tmp_path / "absent.yaml").returncode == 2


def test_the_answer_names_pick_runner_up_smaller_gpu_and_rejections(job: Path) -> None:
    text = stoker("plan", job).stdout
    for part in ("Pick:", "Runner-up:", "smaller GPU", "cannot work", "ST321", "127.8 M"):
        assert part in text
    korean = stoker("plan", job, "--lang", "ko", "--set", "goal.currency=KRW")
    assert korean.returncode == 0
    assert "원" in korean.stdout
    detailed = stoker("plan", job, "--explain", "--all").stdout
    assert "optimizer states" in detailed
    assert len(detailed.splitlines()) > len(text.splitlines())


def test_a_cp949_terminal_gets_an_answer(job: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stoker", "plan", str(job), "--lang", "ko"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "cp949"},
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.decode("cp949")


def test_every_term_of_a_plan_has_a_word_in_both_languages(job: Path) -> None:
    """--explain shows words, not the keys of the JSON document."""
    from stoker.core.i18n import set_language
    from stoker.report.plan_text import term_name

    data = json.loads(stoker("plan", job, "--json", "--set", "goal.vat_frac=0.1").stdout)
    candidate = data["candidates"][0]
    memory, time, cost = candidate["memory"], candidate["time"], candidate["cost"]
    names = {*memory["terms"], *memory["phases"], *time["step_terms"], *time["total_terms"], *cost["lines"]}
    set_language("ko")
    assert [name for name in sorted(names) if term_name(name) == name.replace("_", " ")] == []
