"""The starter job file that `init` writes: every key of the job once, its sentence taken from the job's own fields.

A few keys are active, so that the file is a job as soon as its data exists; all others stand there commented out with
their defaults.
"""

import dataclasses
import textwrap
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from stoker.core.codec import dumps
from stoker.core.i18n import _
from stoker.core.job import Job, Task

_WIDTH = 110
_ACTIVE: Mapping[str, Mapping[str, Any]] = {
    "text_classification": {
        "model": "beomi/KcELECTRA-base-v2022",
        "problem": "single_label",
        "data.train": "train.csv",
        "data.eval_frac": 0.05,
        "data.text": "text",
        "data.labels": "label",
        "train.epochs": 3,
        "train.global_batch_size": 32,
        "train.lr": 2e-5,
    },
    "causal_lm": {
        "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "data.train": "train.jsonl",
        "data.eval_frac": 0.05,
        "data.text": {"prompt": "question", "response": "answer"},
        "tune.method": "lora",
        "train.epochs": 3,
        "train.global_batch_size": 16,
        "train.lr": 2e-4,
        "train.schedule": "cosine",
    },
    "image_classification": {
        "model": "google/vit-base-patch16-224-in21k",
        "data.train": "images/train",
        "data.eval_frac": 0.1,
        "train.epochs": 3,
        "train.global_batch_size": 64,
        "train.lr": 5e-5,
    },
}


def starter_job(task: Task, schema: str | None = None) -> str:
    """The text of a starter job file for `task`, in the language in force; `read_job` accepts it as it stands.

    `schema`: URI of the job file's JSON schema, for editors.
    """
    active = {**_ACTIVE[task], "task": task}
    lines = [
        *([f"# yaml-language-server: $schema={schema}"] if schema else []),
        "# " + _("A stoker job. Active keys first need your own values; a key behind # shows its default."),
        "# " + _("Next: stoker check, stoker plan, stoker run, each followed by this file's name."),
    ]
    for item in _keys(Job):
        section = _section(Job, item.name)
        value = active.get(item.name)
        if section is None:
            lines += ["", *_comment(item), _line(item.name, value, item, indent="")]
        else:
            lines += ["", *_comment(item), *_section_lines(item.name, section, active)]
    return "\n".join(lines) + "\n"


def _section_lines(name: str, section: type, active: Mapping[str, Any]) -> Iterator[str]:
    used = any(key.startswith(name + ".") for key in active)
    yield f"{name}:" if used else f"# {name}:"
    for item in _keys(section):
        yield from _comment(item, indent="  ")
        value = active.get(f"{name}.{item.name}")
        text = _line(item.name, value, item, indent="  ")
        yield text


def _line(name: str, value: Any, item: "dataclasses.Field[Any]", *, indent: str) -> str:
    if value is not None:
        return f"{indent}{name}: {_yaml(value)}"
    return f"{indent}# {name}: {_yaml(_default(item))}".rstrip()


def _comment(item: "dataclasses.Field[Any]", indent: str = "") -> list[str]:
    sentence = _(str(item.metadata["doc"]))
    return textwrap.wrap(sentence, _WIDTH, initial_indent=f"{indent}## ", subsequent_indent=f"{indent}## ")


def _keys(section: type) -> "Iterator[dataclasses.Field[Any]]":
    return (f for f in dataclasses.fields(section) if not f.metadata.get("internal"))


def _section(owner: type, name: str) -> type | None:
    """The section dataclass of a key whose type is one and nothing else."""
    hint = typing.get_type_hints(owner)[name]
    return hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None


def _default(item: "dataclasses.Field[Any]") -> Any:
    if item.default is not dataclasses.MISSING:
        return item.default
    return item.default_factory() if item.default_factory is not dataclasses.MISSING else None


def _yaml(value: Any) -> str:
    """A value in YAML's flow form, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, str):
        return (
            value
            if value.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum()
            else dumps(value)
        )
    if isinstance(value, float) and abs(value) < 1e-3 and value:
        mantissa, _e, exponent = f"{value:e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return dumps(value)
