"""Proves that `stoker doctor` tells parts, machine, speed, environment and paths, without torch, and always exits 0."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stoker.cli import doctor as doctor_module
from stoker.cli.main import main
from stoker.core.i18n import set_language
from stoker.observe.bandwidth import MachineRates
from stoker.observe.parts import PARTS, find_parts, torch_cuda_version


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> MachineRates:
    """Measuring takes seconds and is tested in test_observe_bandwidth."""
    found = MachineRates(
        machine="m", num_cores=2, date="2026-01-02", ram_bytes_per_s=12e9, matmul_flops_per_s=7e10, matmul_with="numpy",
        disk_place="/here", disk_write_bytes_per_s=1.5e9, gpu="NVIDIA H200", pcie_up_bytes_per_s=55.5e9,
    )  # fmt: skip
    monkeypatch.setattr("stoker.observe.bandwidth.kept_rates", lambda path=None: found)
    return found


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(["doctor", *arguments])
    assert left.value.code == 0
    return capsys.readouterr().out


def test_text_has_every_section_and_the_fix_of_each_missing_part(
    capsys: pytest.CaptureFixture[str], rates: MachineRates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.observe.parts.installed_version", lambda name: "1.0" if name == "stoker" else None)
    text = _run(capsys, "--quick")
    for word in ("Machine", "Speed", "Environment in force", "Paths in use", "12.0 GB/s", "55.5 GB/s", "70 GFLOP/s"):
        assert word in text
    for part in PARTS:
        (line,) = [line for line in text.splitlines() if line.startswith(part.distribution + " ")]
        assert ("needs a GPU" in line) if part.needs_gpu else (part.install in line and "missing" in line)
    assert "not measured" in text  # the disk's read rate


def test_json_is_one_document_with_the_same(capsys: pytest.CaptureFixture[str], rates: MachineRates) -> None:
    found = json.loads(_run(capsys, "--quick", "--json"))
    assert {part["name"] for part in found["parts"]} == {part.distribution for part in PARTS}
    assert found["machine"]["num_cores"] >= 1 and found["machine"]["memory_total_bytes"] > 1e8
    assert set(found["machine"]["disk_free_bytes"]) == {"working_folder", "stoker_cache", "hugging_face_cache"}
    assert found["rates"]["ram_bytes_per_s"] == 12e9
    assert found["environment"]["HF_HUB_OFFLINE"] == "1"
    assert any("HF_HUB_OFFLINE" in line for line in found["advice"])


def test_without_rates_it_says_that_plans_assume(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.observe.bandwidth.kept_rates", lambda path=None: None)
    assert "assumed" in _run(capsys, "--quick")


def test_measures_unless_quick(monkeypatch: pytest.MonkeyPatch, rates: MachineRates) -> None:
    asked: list[Any] = []

    def measure(folder: Path, *, gpu: bool) -> MachineRates:
        asked.append((folder, gpu))
        return rates

    monkeypatch.setattr("stoker.observe.bandwidth.measure_rates", measure)
    monkeypatch.setattr("stoker.observe.bandwidth.keep_rates", asked.append)
    doctor_module.examine(quick=True)
    assert asked == []
    doctor_module.examine(quick=False)
    assert asked == [(Path.cwd(), False), rates]


def test_it_never_loads_torch_and_works_where_torch_transformers_and_numpy_are_absent(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'transformers', 'numpy', 'pynvml', 'safetensors'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from stoker.observe import bandwidth\n"
        "bandwidth._COPY_BYTES, bandwidth._DISK_BYTES, bandwidth._PROBE_S = 1 << 22, 1 << 24, 0.01\n"
        "from stoker.cli.main import main\n"
        "try: main(['doctor', '--json'])\n"
        "finally: assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["torch_cuda"] is None and "nvidia-ml-py" in found["gpus_missing"]
    assert found["rates"]["ram_bytes_per_s"] > 0 and found["rates"]["matmul_flops_per_s"] is None


def test_secrets_are_never_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, rates: MachineRates
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@proxy")
    for arguments in (("--quick",), ("--quick", "--json")):
        text = _run(capsys, *arguments)
        assert "secret" not in text and "HF_TOKEN" in text and "HTTPS_PROXY" in text


def test_status_of_parts() -> None:
    versions = {"torch": "2.10.1+cu128", "transformers": "5.24.0", "peft": "0.9", "flash-attn": "2.8"}
    plain = {part.name: part for part in find_parts(has_gpu=False, version_of=versions.get)}
    assert plain["torch"].status == "old" and "2.11" in plain["torch"].fix
    assert plain["transformers"].status == "ok" and plain["transformers"].fix == ""
    assert plain["peft"].status == "old" and plain["wandb"].status == "missing" and plain["wandb"].fix
    assert plain["flash-attn"].status == "no_gpu"
    with_gpu = {part.name: part for part in find_parts(has_gpu=True, version_of=versions.get)}
    assert with_gpu["flash-attn"].status == "ok"


def test_only_parts_that_something_uses_are_offered() -> None:
    """Advice to install what no command would load is worse than none."""
    sources = Path(doctor_module.__file__).resolve().parents[1].rglob("*.py")
    code = "".join(file.read_text(encoding="utf-8") for file in sources if file.name != "parts.py")
    assert [part.module for part in PARTS if part.module not in code] == []


def test_cuda_build_is_read_without_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('broken')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for text, expected in (
        ("__version__ = '2.13.0+cu128'\ncuda: Optional[str] = '12.8'\n", "12.8"),
        ("cuda = None\n", None),
        ("", None),
    ):
        (package / "version.py").write_text(text)
        assert torch_cuda_version() == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shared_memory_bytes": 64 << 20}, "--shm-size"),
        ({"cgroup_memory_bytes": 10**9}, "container"),
        ({"disk_free_bytes": {"working_folder": 10**9}}, "--out"),
    ],
)
def test_advice_names_the_fix(change: dict[str, Any], words: str) -> None:
    machine = {
        "shared_memory_bytes": 8 << 30,
        "cgroup_memory_bytes": None,
        "memory_total_bytes": 10**11,
        "disk_free_bytes": {"working_folder": 10**12},
    }
    found = {"machine": machine, "gpus": [], "torch_cuda": None, "parts": (), "environment": {}, "rates": 1}
    assert doctor_module._advice(found, "") == []
    (line,) = doctor_module._advice({**found, "machine": {**machine, **change}}, "")
    assert words in line


def test_hidden_gpus_and_cpu_torch_are_told() -> None:
    machine = dict.fromkeys(("shared_memory_bytes", "cgroup_memory_bytes", "memory_total_bytes"))
    gpu = {"name": "NVIDIA H200", "visible": False}
    found = {
        "machine": {**machine, "disk_free_bytes": {"working_folder": None}},
        "gpus": [gpu],
        "torch_cuda": None,
        "parts": find_parts(has_gpu=True, version_of={"torch": "2.13.0+cpu"}.get),
        "environment": {},
        "rates": None,
    }
    advice = doctor_module._advice(found, "note of the order")
    assert any("without CUDA" in line for line in advice) and any("CUDA_VISIBLE_DEVICES" in line for line in advice)
    assert "note of the order" in advice


def test_korean_output_keeps_its_columns(rates: MachineRates) -> None:
    set_language("ko")
    try:
        text = doctor_module.render(doctor_module.examine(quick=True))
    finally:
        set_language("en")
    assert "stoker" in text and "torch" in text
