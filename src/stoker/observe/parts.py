"""Optional parts of an installation: which are here, in which version, what each unlocks, how to get it.

Looks at package metadata only; nothing is imported, so a broken or missing torch cannot break the look.
"""

import importlib.metadata
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stoker.core.i18n import N_, _

PartStatus = Literal["ok", "missing", "old", "no_gpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An optional part. `unlocks`: English msgid; `at_least`: first version that works; `needs_gpu`: idle without."""

    distribution: str
    module: str
    unlocks: str
    install: str
    at_least: str = ""
    needs_gpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPart:
    """A part as it was found; `fix` is a command or sentence, empty where there is nothing to do."""

    name: str
    status: PartStatus
    version: str
    unlocks: str
    fix: str


PARTS: tuple[Part, ...] = (
    Part(
        distribution="torch",
        module="torch",
        unlocks=N_("stoker run and predict"),
        install='pip install "stoker[train]"',
        at_least="2.11",
    ),
    Part(
        distribution="transformers",
        module="transformers",
        unlocks=N_("models from Hugging Face folders and the hub cache"),
        install='pip install "stoker[train]"',
        at_least="5.0",
    ),
    Part(
        distribution="safetensors",
        module="safetensors",
        unlocks=N_("reading and writing weights"),
        install='pip install "stoker[train]"',
        at_least="0.5",
    ),
    Part(
        distribution="peft",
        module="peft",
        unlocks=N_("tune.method: lora, dora"),
        install='pip install "stoker[train]"',
        at_least="0.18",
    ),
    Part(
        distribution="nvidia-ml-py",
        module="pynvml",
        unlocks=N_("hardware.here on NVIDIA GPUs, power and memory readings"),
        install="pip install nvidia-ml-py",
    ),
    Part(
        distribution="flash-attn",
        module="flash_attn",
        unlocks=N_("run.attention: flash"),
        install="pip install flash-attn --no-build-isolation",
        needs_gpu=True,
    ),
    Part(
        distribution="pillow",
        module="PIL",
        unlocks=N_("image_classification"),
        install="pip install pillow",
    ),
    Part(
        distribution="matplotlib",
        module="matplotlib",
        unlocks=N_("PNG curves in stoker report"),
        install='pip install "stoker[plots]"',
    ),
    Part(
        distribution="tensorboard",
        module="tensorboard",
        unlocks=N_("track: [tensorboard]"),
        install="pip install tensorboard",
    ),
    Part(
        distribution="mlflow",
        module="mlflow",
        unlocks=N_("track: [mlflow]"),
        install="pip install mlflow",
    ),
    Part(
        distribution="wandb",
        module="wandb",
        unlocks=N_("track: [wandb]"),
        install="pip install wandb",
    ),
    Part(
        distribution="trackio",
        module="trackio",
        unlocks=N_("track: [trackio]"),
        install="pip install trackio",
    ),
)


def find_parts(
    *, has_gpu: bool, version_of: Callable[[str], str | None] | None = None, parts: tuple[Part, ...] = PARTS
) -> tuple[FoundPart, ...]:
    """Each optional part with its status. `version_of`: distribution -> version or None (default: the installed)."""
    look = version_of or installed_version
    return tuple(_judge(part, look(part.distribution), has_gpu) for part in parts)


def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution, None where it is absent."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def torch_cuda_version() -> str | None:
    """CUDA version that the installed torch was built for, None for a CPU build or no torch; torch is not imported."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):  # a half-removed installation
        return None
    if spec is None or not spec.origin:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"^cuda\b[^=]*=\s*['\"]([0-9.]+)['\"]", text, re.MULTILINE)
    return match.group(1) if match else None


def _judge(part: Part, version: str | None, has_gpu: bool) -> FoundPart:
    status: PartStatus = "ok"
    fix = ""
    if version is None:
        status, fix = "missing", part.install
    elif part.at_least and _numbers(version) < _numbers(part.at_least):
        status = "old"
        fix = _("pip install --upgrade {name} (at least {version})").format(
            name=part.distribution, version=part.at_least
        )
    if part.needs_gpu and not has_gpu:
        status, fix = "no_gpu", ""
    return FoundPart(name=part.distribution, status=status, version=version or "", unlocks=_(part.unlocks), fix=fix)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in re.findall(r"\d+", version.split("+")[0])[:3])
