"""`stoker doctor`: optional parts, this machine and how fast it is, the environment in force, the paths in use.

Works without torch; torch is imported only to measure PCIe, so only where a GPU is. Always exits 0: what is missing
is told with its fix.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from stoker.cli.console import notice, print_answer, print_json
from stoker.cli.options import JsonOption, LangOption
from stoker.core.i18n import _

_VARIABLES = (
    "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT", "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "OMP_NUM_THREADS",
    "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "XDG_CACHE_HOME",
    "TMPDIR", "LANG", "LC_ALL", "NO_COLOR", "STOKER_LANG", "STOKER_TRACEBACK",
)  # fmt: skip
_SECRETS = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "WANDB_API_KEY",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "http_proxy",
    "https_proxy",
)
_SMALL_SHM_BYTES = 1 << 30
_SMALL_DISK_BYTES = 20e9


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help=_("measure nothing: show what was measured last"))] = False,
    as_json: JsonOption = False,
    lang: LangOption = "",
) -> None:
    found = examine(quick=quick)
    if as_json:
        print_json(found)
    else:
        print_answer(render(found))


def examine(*, quick: bool) -> dict[str, Any]:
    """Everything that doctor tells, as JSON types: parts, gpus, machine, rates, environment, paths, advice."""
    from stoker import __version__
    from stoker.observe.nvml import scan_gpus, visible_gpus
    from stoker.observe.parts import find_parts, torch_cuda_version

    scan = scan_gpus()
    visible, note = visible_gpus(scan.gpus)
    cuda = torch_cuda_version()
    rates = _rates(quick=quick, gpu=bool(visible and cuda))
    paths = _paths()
    machine = _machine(paths)
    found: dict[str, Any] = {
        "stoker": __version__,
        "python": sys.version.split()[0],
        "parts": find_parts(has_gpu=bool(scan.gpus)),
        "torch_cuda": cuda,
        "gpus": [
            {
                "name": gpu.name,
                "uuid": gpu.uuid,
                "visible": gpu in visible,
                "total_bytes": gpu.total_bytes,
                "compute_capability": gpu.compute_capability,
                "driver": gpu.driver,
                "pcie_bytes_per_s": gpu.pcie_bytes_per_s.value,
            }
            for gpu in scan.gpus
        ],
        "gpus_missing": scan.reason,
        "machine": machine,
        "rates": rates,
        "environment": _environment(os.environ),
        "paths": paths,
    }
    found["advice"] = _advice(found, note)
    return found


def _rates(*, quick: bool, gpu: bool) -> Any:
    from stoker.observe.bandwidth import keep_rates, kept_rates, measure_rates

    if quick:
        return kept_rates()
    notice(_("measuring memory, processor and disk (a few seconds; --quick leaves it out)"))
    rates = measure_rates(Path.cwd(), gpu=gpu)
    keep_rates(rates)
    return kept_rates() or rates


def _machine(paths: Mapping[str, str]) -> dict[str, Any]:
    from stoker.observe import limits
    from stoker.observe.bandwidth import cpu_name

    total, available = limits.host_memory_bytes()
    return {
        "cpu": cpu_name(),
        "num_cores": limits.num_cores(),
        "num_cores_of_machine": os.cpu_count(),
        "cgroup_cpus": limits.cgroup_cpus().value,
        "memory_total_bytes": total.num_bytes,
        "memory_available_bytes": available.num_bytes,
        "cgroup_memory_bytes": limits.cgroup_memory().limit_bytes.num_bytes,
        "usable_memory_bytes": limits.usable_memory_bytes().num_bytes,
        "shared_memory_bytes": limits.shared_memory_bytes().num_bytes,
        "disk_free_bytes": {name: limits.disk_free_bytes(Path(paths[name])).num_bytes for name in _DISKS},
    }


_DISKS = ("working_folder", "stoker_cache", "hugging_face_cache")


def _paths() -> dict[str, str]:
    from stoker.observe.bandwidth import cache_file

    home = os.environ.get("HF_HOME") or str(
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    )
    return {
        "working_folder": str(Path.cwd()),
        "stoker_cache": str(cache_file().parent),
        "hugging_face_cache": os.environ.get("HF_HUB_CACHE") or str(Path(home) / "hub"),
        "temporary_folder": tempfile.gettempdir(),
        "python": sys.executable,
    }


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that change what stoker does, those in force; of secrets only that they are set."""
    shown = {name: environment[name] for name in _VARIABLES if name in environment}
    return shown | {name: _("(set)") for name in _SECRETS if environment.get(name)}


def _advice(found: Mapping[str, Any], gpu_note: str) -> list[str]:
    """What to do about this machine, one sentence each."""
    machine, advice = found["machine"], []
    if found["gpus"] and found["torch_cuda"] is None and _version(found, "torch"):
        advice.append(_("torch was built without CUDA: install the CUDA build (pytorch.org/get-started)"))
    if found["gpus"] and not any(gpu["visible"] for gpu in found["gpus"]):
        advice.append(_("no GPU is visible to CUDA: check CUDA_VISIBLE_DEVICES"))
    if gpu_note:
        advice.append(gpu_note)
    shared = machine["shared_memory_bytes"]
    if shared is not None and shared < _SMALL_SHM_BYTES:
        advice.append(_("/dev/shm is small for loader processes: start the container with --shm-size=8g"))
    limit, total = machine["cgroup_memory_bytes"], machine["memory_total_bytes"]
    if limit and total and limit < total:
        advice.append(_("the container may use less memory than the machine has: plans count the container's limit"))
    free = machine["disk_free_bytes"]["working_folder"]
    if free is not None and free < _SMALL_DISK_BYTES:
        advice.append(_("little disk space is left here: put run folders on another disk with --out"))
    if found["environment"].get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on"):
        advice.append(_("HF_HUB_OFFLINE is set: models and data sets come from the cache alone"))
    if found["rates"] is None:
        advice.append(_("speeds are assumed in plans for this machine: run `stoker doctor` once without --quick"))
    return advice


def _version(found: Mapping[str, Any], name: str) -> str:
    return next((part.version for part in found["parts"] if part.name == name), "")


def render(found: Mapping[str, Any]) -> str:
    """The same as text: tables of parts, machine, speeds, environment and paths, then what to do."""
    sections = [
        f"stoker {found['stoker']}  Python {found['python']}",
        _parts_table(found),
        _section(_("Machine"), _machine_rows(found)),
        _section(_("Speed"), _rate_rows(found["rates"])),
        _section(_("Environment in force"), list(found["environment"].items())),
        _section(_("Paths in use"), _path_rows(found)),
    ]
    if found["advice"]:
        sections.append("\n".join([_("What to do"), *(f"  -> {line}" for line in found["advice"])]))
    return "\n\n".join(section for section in sections if section)


def _parts_table(found: Mapping[str, Any]) -> str:
    from stoker.report.tables import Column, render_table

    words = {"ok": _("ok"), "missing": _("missing"), "old": _("too old"), "no_gpu": _("needs a GPU")}
    columns = [Column(_("part")), Column(_("status")), Column(_("version")), Column(_("unlocks")), Column(_("get it"))]
    rows = [[part.name, words[part.status], part.version, part.unlocks, part.fix] for part in found["parts"]]
    return render_table(columns, rows)


def _section(title: str, rows: list[tuple[str, str]]) -> str:
    from stoker.report.tables import display_width, pad

    if not rows:
        return ""
    width = max(display_width(name) for name, _value in rows)
    return "\n".join([title, *(f"  {pad(name, width)}  {value}" for name, value in rows)])


def _machine_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    from stoker.core.human import format_bytes

    machine = found["machine"]
    rows = [
        (_("processor"), f"{machine['cpu']}, " + _cores(machine)),
        (
            _("memory"),
            _("{usable} usable, {total} in all").format(
                usable=format_bytes(machine["usable_memory_bytes"]), total=format_bytes(machine["memory_total_bytes"])
            ),
        ),
    ]
    if machine["cgroup_memory_bytes"] is not None:
        rows.append((_("container limit"), format_bytes(machine["cgroup_memory_bytes"])))
    rows.append((_("/dev/shm"), format_bytes(machine["shared_memory_bytes"])))
    for gpu in found["gpus"]:
        capability = ".".join(map(str, gpu["compute_capability"] or ("?",)))
        shown = "" if gpu["visible"] else ", " + _("hidden by CUDA_VISIBLE_DEVICES")
        rows.append(
            (
                "GPU",
                f"{gpu['name']}, {format_bytes(gpu['total_bytes'], binary=True)}, "
                + _("capability {capability}, driver {driver}").format(capability=capability, driver=gpu["driver"])
                + shown,
            )
        )
    if not found["gpus"]:
        rows.append(("GPU", _("none: {reason}").format(reason=found["gpus_missing"])))
    return rows


def _cores(machine: Mapping[str, Any]) -> str:
    usable, total = machine["num_cores"], machine["num_cores_of_machine"]
    if usable == total:
        return _("{count} cores").format(count=usable)
    return _("{count} cores usable of {total}").format(count=usable, total=total)


def _rate_rows(rates: Any) -> list[tuple[str, str]]:
    from stoker.core.human import format_bytes

    def rate(value: float | None) -> str:
        return _("not measured") if value is None else f"{format_bytes(value)}/s"

    if rates is None:
        return []
    rows = [(_("memory copy"), rate(rates.ram_bytes_per_s))]
    if rates.matmul_flops_per_s:
        rows.append((_("fp32 matrix product"), f"{rates.matmul_flops_per_s / 1e9:,.0f} GFLOP/s ({rates.matmul_with})"))
    rows += [
        (_("disk write (fsync)"), f"{rate(rates.disk_write_bytes_per_s)}  {rates.disk_place}"),
        (_("disk read"), rate(rates.disk_read_bytes_per_s)),
    ]
    if rates.gpu:
        rows.append((_("PCIe to the GPU"), f"{rate(rates.pcie_up_bytes_per_s)}  {rates.gpu}"))
        rows.append((_("PCIe from the GPU"), rate(rates.pcie_down_bytes_per_s)))
    rows.append((_("measured on"), rates.date))
    return rows


def _path_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    from stoker.core.human import format_bytes

    titles = {
        "working_folder": _("working folder"),
        "stoker_cache": _("stoker's cache"),
        "hugging_face_cache": _("Hugging Face cache"),
        "temporary_folder": _("temporary folder"),
        "python": "Python",
    }
    free = found["machine"]["disk_free_bytes"]
    return [
        (
            titles[name],
            path + (_(" ({free} free)").format(free=format_bytes(free[name])) if free.get(name) is not None else ""),
        )
        for name, path in found["paths"].items()
    ]
