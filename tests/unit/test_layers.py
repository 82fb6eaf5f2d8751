"""The shape of the code: layers point downward, planning loads no torch, files and functions stay small, and codes,
their entries and their uses agree."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.core.codes import ALL_CODES
from stoker.core.codes import __path__ as codes_path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "stoker"
FILES = sorted(SOURCE.rglob("*.py"))
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
HEAVY = ("torch", "transformers", "peft", "torchmetrics", "torchdata", "matplotlib", "sklearn", "pandas")
PLANNING = ("core", "catalogue", "techniques", "estimators", "planner", "report", "cli", "data")


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def test_the_layers_hold() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    if not tool.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_stay_small() -> None:
    """The budget is 400 lines, the hard limit 500."""
    sizes = {name_of(file): len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert {name: size for name, size in sizes.items() if size > MAX_FILE_LINES} == {}


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))


def test_functions_stay_small() -> None:
    long = {
        f"{name_of(file)}:{function.name}": size
        for file in FILES
        for function in _functions(tree_of(file))
        if (size := (function.end_lineno or 0) - function.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert long == {}


def test_every_module_says_what_it_answers() -> None:
    silent = [name_of(f) for f in FILES if f.read_text(encoding="utf-8").strip() and not ast.get_docstring(tree_of(f))]
    assert silent == []


def _module_level_imports(tree: ast.Module) -> Iterator[str]:
    """Names imported when the module is: not those inside functions or under TYPE_CHECKING."""
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            stack += node.orelse
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            stack += ast.iter_child_nodes(node)


def _heavy_imports(file: Path) -> list[str]:
    return [name for name in _module_level_imports(tree_of(file)) if name.split(".")[0] in HEAVY]


def _planning_files() -> Iterator[Path]:
    for folder in PLANNING:
        yield from sorted((SOURCE / folder).rglob("*.py"))


def test_planning_code_imports_nothing_heavy_at_module_level() -> None:
    """Only technique files that do nothing but construct may; they are imported where they build."""
    heavy = {name_of(file): names for file in _planning_files() if (names := _heavy_imports(file))}
    assert {name: names for name, names in heavy.items() if not name.startswith("src/stoker/techniques/")} == {}
    assert [name for name in heavy if name.endswith("__init__.py")] == []


def test_planning_loads_no_torch_in_a_fresh_interpreter() -> None:
    """Imports every planning module in one new process and looks at what came along."""
    modules = [
        ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        for file in _planning_files()
        if not _heavy_imports(file)
    ]
    script = (
        "import importlib, json, sys\n"
        f"[importlib.import_module(name) for name in {modules!r}]\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_no_pickle_anywhere() -> None:
    users = [
        f"{name_of(file)}: {name}"
        for file in FILES
        for node in ast.walk(tree_of(file))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        if name.split(".")[0] in ("pickle", "cloudpickle", "dill", "shelve", "marshal")
    ]
    assert users == []


def test_files_are_opened_with_their_encoding() -> None:
    """cp949 machines: a text file without `encoding=` is read in the machine's own."""
    bare = [
        f"{name_of(file)}:{node.lineno}"
        for file in FILES
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Call) and _opens_text(node) and not any(k.arg == "encoding" for k in node.keywords)
    ]
    assert bare == []


def _opens_text(call: ast.Call) -> bool:
    attribute = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if attribute in ("read_text", "write_text"):
        return not (attribute == "read_text" and call.args)
    opens = attribute == "open" or (isinstance(call.func, ast.Name) and call.func.id == "open")
    texts = [a.value for a in (*call.args, *(k.value for k in call.keywords if k.arg == "mode")) if _is_mode(a)]
    if attribute == "open" and call.args and not _is_mode(call.args[0]):
        return False  # os.open(path), Image.open(path): not a Path's own open(mode)
    return opens and not any("b" in text for text in texts)


def _is_mode(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(re.fullmatch("[rwaxbt+]+", node.value))
    )


def _code_literals() -> dict[str, list[str]]:
    """ST code -> where a string of the source is exactly that code, the entries themselves left out."""
    entries = {Path(folder).resolve() for folder in codes_path}
    found: dict[str, list[str]] = {}
    for file in FILES:
        if file.parent in entries:
            continue
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"ST\d{3}", node.value):
                found.setdefault(node.value, []).append(f"{name_of(file)}:{node.lineno}")
    return found


def test_every_code_used_has_an_entry() -> None:
    known = {code.number for code in ALL_CODES}
    assert {number: places for number, places in _code_literals().items() if number not in known} == {}


def test_every_entry_is_used() -> None:
    assert sorted({code.number for code in ALL_CODES} - set(_code_literals())) == []
