"""The papers say what is there: links resolve, both READMEs agree, commands and folders exist, examples parse."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from stoker.core.i18n import set_language
from stoker.core.io import job_from_document
from stoker.core.job_yaml import parse_yaml

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.ko.md")
PAPERS = (*READMES, "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md", "docs/math.md", "benchmarks/README.md")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str) -> list[str]:
    return re.findall(r"^```\w*\n(.*?)^```", read(name), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", PAPERS)
def test_relative_links_resolve(name: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", read(name))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not ((ROOT / name).parent / target).exists()] == []


def test_both_readmes_have_the_same_shape() -> None:
    english, korean = (read(name) for name in READMES)
    for pattern in (r"^#+ ", r"^\|", r"^- ", r"^```"):
        counts = [len(re.findall(pattern, text, flags=re.MULTILINE)) for text in (english, korean)]
        assert counts[0] == counts[1], pattern


def test_both_readmes_show_the_same_commands_and_job() -> None:
    def bare(block: str) -> list[str]:
        return [line.split("#")[0].split("  ")[0].rstrip() for line in block.splitlines()]

    english, korean = (blocks(name) for name in READMES)
    assert bare(english[0]) == bare(korean[0])
    assert bare(english[1]) == bare(korean[1])
    assert bare(english[3]) == bare(korean[3])


@pytest.mark.parametrize("name", READMES)
def test_the_job_example_is_a_valid_job(name: str) -> None:
    example = next(block for block in blocks(name) if block.startswith("model:"))
    job = job_from_document(parse_yaml(example, place=name), place=name, base_dir=ROOT)
    assert job.train.lr == 2e-5


@pytest.mark.parametrize("name", READMES)
def test_every_command_is_named_and_every_named_one_exists(name: str) -> None:
    import typer

    from stoker.cli.app import build_app

    set_language("en")
    known = set(typer.main.get_command(build_app()).commands)  # type: ignore[attr-defined]
    named = set(re.findall(r"^\| `stoker (\w+)", read(name), flags=re.MULTILINE))
    assert named == known


@pytest.mark.parametrize("name", READMES)
def test_the_tree_is_the_tree(name: str) -> None:
    tree = next(block for block in blocks(name) if block.startswith("src/stoker/"))
    inner = set(re.findall(r"^  (\w+)/", tree, flags=re.MULTILINE))
    folders = {p.name for p in (ROOT / "src" / "stoker").iterdir() if p.is_dir() and not p.name.startswith("__")}
    assert inner == folders
    outer = re.findall(r"^(\w+)/ ", tree, flags=re.MULTILINE)
    assert [folder for folder in outer if not (ROOT / folder).is_dir()] == []


def test_the_record_keys_of_the_paper_are_those_of_the_types() -> None:
    from dataclasses import fields

    from stoker.core.record import EvalLine, EventLine, SaveLine, StepLine

    text = read("docs/architecture.md")
    for kind, line in (("step", StepLine), ("eval", EvalLine), ("save", SaveLine), ("event", EventLine)):
        row = next(part for part in text.splitlines() if part.startswith(f"| `{kind}`"))
        assert [f.name for f in fields(line) if f"`{f.name}`" not in row] == []


def test_every_test_that_the_formulas_name_exists() -> None:
    named = set(re.findall(r"`(test_\w+?)(?:\.\.\.)?`", read("docs/math.md")))
    files = [file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py")]
    defined = [name for text in files for name in re.findall(r"^def (test_\w+)", text, flags=re.MULTILINE)]
    assert len(named) > 15
    assert [name for name in named if not any(known.startswith(name) for known in defined)] == []


def test_every_path_and_constant_that_the_formulas_name_exists() -> None:
    text = read("docs/math.md")
    paths = [path for path in re.findall(r"`([\w/]+\.(?:py|csv|md))`", text) if "/" in path]
    assert paths
    assert [
        path for path in paths if not (ROOT / path).exists() and not (ROOT / "src" / "stoker" / path).exists()
    ] == []
    constants = "".join(f.read_text(encoding="utf-8") for f in (ROOT / "src/stoker/catalogue/data").glob("efficiency*"))
    known = constants + read("src/stoker/core/estimate.py")  # what is constant, and what an estimate calls its parts
    names = re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text)
    assert [name for name in names if not name.startswith("test_") and name not in known] == []


def benchmark_table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_table", ROOT / "tools" / "benchmark_table.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_the_table_of_benchmarks_is_that_of_the_records() -> None:
    tool = benchmark_table()
    set_language("en")
    text = read("benchmarks/README.md")
    assert tool.renewed(text) == text, "run python tools/benchmark_table.py"


def test_a_run_out_of_memory_keeps_its_row(tmp_path: Path) -> None:
    """Benchmarks that show successes only would be advertising."""
    tool = benchmark_table()
    failed = {"hardware": {"device": "T4"}, "status": "failed", "error": "ST431 out of memory", "steps": 0}
    (tmp_path / "2026-12-01-t4.json").write_text(json.dumps(failed), encoding="utf-8")
    assert "ST431 out of memory" in tool.table(tmp_path)


def test_the_contributing_page_is_one_page() -> None:
    assert len(read("CONTRIBUTING.md").splitlines()) <= 80
