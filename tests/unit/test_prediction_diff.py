"""tools/prediction_diff.py: it finds what moved and by which term, and fails only for what was lost."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

_FILE = Path(__file__).parents[2] / "tools" / "prediction_diff.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("prediction_diff", _FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prediction_diff"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def _cell(tool: ModuleType, status: str = "fits", memory: float | None = 10.0, logits: float = 0.5) -> object:
    terms = {"params": round(1 - logits, 3), "logits": logits} if memory else {}
    return tool.Cell(status, memory, 2.0 if memory else None, 20.0 if memory else None, terms, {"compute": 1.0})


def test_a_file_gives_back_the_grid(tool: ModuleType) -> None:
    grid = {("a/full", "L4"): _cell(tool), ("b/lora", "T4"): _cell(tool, "rejected:ST320", None)}
    text = tool.to_csv(grid)
    assert tool.to_csv(tool.from_csv(text)) == text
    assert tool.from_csv(text)["a/full", "L4"].memory_terms == {"params": 0.5, "logits": 0.5}


def test_drift_names_the_term_and_does_not_fail(tool: ModuleType) -> None:
    """10 GB with 5 of logits becomes 12 GB with 7 of logits: +20 %, all of it logits."""
    old = {("a", "L4"): _cell(tool)}
    new = {("a", "L4"): _cell(tool, memory=12.0, logits=7 / 12)}
    lines, bad = tool.compare(old, new)
    text = "\n".join(lines)
    assert "+20.0%" in text
    assert "logits +2" in text
    assert "step_s: no change" in text
    assert not bad


@pytest.mark.parametrize(("status", "title"), [("rejected:ST320", "infeasible"), ("does_not_fit", "infeasible")])
def test_what_fitted_and_fits_no_more_fails(tool: ModuleType, status: str, title: str) -> None:
    lines, bad = tool.compare({("a", "L4"): _cell(tool)}, {("a", "L4"): _cell(tool, status, None)})
    assert bad
    assert any(title in line for line in lines)


def test_an_error_that_appears_fails_and_an_old_one_does_not(tool: ModuleType) -> None:
    broken, whole = _cell(tool, "error:KeyError", None), _cell(tool, "rejected:ST320", None)
    assert tool.compare({("a", "L4"): whole}, {("a", "L4"): broken})[1]
    assert not tool.compare({("a", "L4"): broken}, {("a", "L4"): broken})[1]


def test_what_becomes_feasible_is_listed_and_does_not_fail(tool: ModuleType) -> None:
    lines, bad = tool.compare({("a", "L4"): _cell(tool, "rejected:ST320", None)}, {("a", "L4"): _cell(tool)})
    assert not bad
    assert any("now fits: 1" in line for line in lines)


def test_the_accepted_baseline_covers_the_grid_and_has_no_error(tool: ModuleType) -> None:
    """Otherwise CI would compare nothing, or a job of the grid would be one that stoker refuses as bad input."""
    baseline = tool.from_csv(tool.BASELINE.read_text(encoding="utf-8"))
    assert {case for case, _gpu in baseline} == {name for name, _job, _gpus in tool.cases()}
    assert len(baseline) > 2000
    assert not [key for key, cell in baseline.items() if cell.status.startswith("error")]
