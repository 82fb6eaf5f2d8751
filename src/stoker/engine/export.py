"""The trained model as an ordinary Hugging Face folder (or a peft folder), ready for AutoModel and for `predict`.

Beside it stand `stoker.json` (labels, thresholds, pooling, lengths: what `predict` needs) and, where our own pooled
head is used, `stoker_head.safetensors`. The folder is written apart and renamed, so that it is whole or not there.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from stoker.core.codec import encode
from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.core.job import Job, TextFields
from stoker.data.tokenizer import load_tokenizer, tokenizer_files
from stoker.engine.build import BuiltModel
from stoker.engine.checkpoint import LocalStorage
from stoker.engine.image_source import ImageForm
from stoker.engine.pooled import PooledClassifier

MODEL_DIR = "model"
NOTES_NAME = "stoker.json"
HEAD_NAME = "stoker_head.safetensors"
NOTES_VERSION = 1


def model_notes(
    job: Job,
    *,
    base_model: str,
    labels: tuple[str, ...],
    thresholds: tuple[float, ...],
    pooling: str | None,
    max_length: int | None,
    form: ImageForm | None,
    adapter: bool,
    step: int,
    metrics: Mapping[str, float],
) -> dict[str, Any]:
    """The content of stoker.json."""
    data = job.data
    text = encode(data.text) if isinstance(data.text, TextFields) else data.text
    return {
        "schema_version": NOTES_VERSION,
        "task": job.task,
        "problem": job.problem if job.task != "causal_lm" else None,
        "base_model": base_model,
        "labels": list(labels),
        "thresholds": list(thresholds),
        "pooling": pooling,
        "max_length": max_length,
        "adapter": adapter,
        "step": step,
        "metric": job.metric,
        "metrics": dict(metrics),
        "columns": {"text": text, "text_pair": data.text_pair, "image": data.image, "template": data.template},
        "image": encode(form),
        "encoding": data.encoding,
        "normalise": data.normalise,
    }


def export_model(
    out_dir: Path,
    built: BuiltModel,
    notes: Mapping[str, Any],
    *,
    tokenizer: Path | None,
    form: ImageForm | None,
    merge: bool,
) -> Path:
    """Write `out_dir`/model and return it; an earlier one is replaced once the new one is whole and on the disk.

    Raises RunError ST459 where the disk refuses; the checkpoints are untouched, and the same run exports again.
    """
    final, temporary = out_dir / MODEL_DIR, out_dir / f".{MODEL_DIR}.new"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        _write_model(temporary, built, notes, tokenizer=tokenizer, form=form, merge=merge)
        _to_disk(temporary)
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
        LocalStorage().fsync_dir(out_dir)
    except (OSError, SafetensorError) as error:  # safetensors tells a full disk in its own way
        shutil.rmtree(temporary, ignore_errors=True)
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise RunError(
            "ST459",
            _("the trained model could not be written: {error}").format(error=why),
            place=str(final),
            fix=_("free or mend the disk, then start the same command again: it exports without training again"),
        ) from error
    return final


def _write_model(
    folder: Path,
    built: BuiltModel,
    notes: Mapping[str, Any],
    *,
    tokenizer: Path | None,
    form: ImageForm | None,
    merge: bool,
) -> None:
    adapter = bool(notes["adapter"])
    network = _merged(built.model) if adapter and merge else built.network
    if adapter and not merge:
        built.model.save_pretrained(folder)  # type: ignore[operator]
        _sort_names(folder / "adapter_config.json")
        if isinstance(network, PooledClassifier):
            save_file(network.head_state(), str(folder / HEAD_NAME))
    else:
        _save_network(network, folder)
    if tokenizer is not None:
        _save_tokenizer(tokenizer, folder)
    if form is not None:
        _write_json(folder / "preprocessor_config.json", form.preprocessor_config())
    stated = {**notes, "adapter": adapter and not merge}
    _write_json(folder / NOTES_NAME, stated)
    (folder / "README.md").write_text(_card(stated), encoding="utf-8")


def _to_disk(folder: Path) -> None:
    """fsync every file and the folder: a run that says finished has its model after a power cut."""
    for file in folder.iterdir():
        descriptor = os.open(file, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    LocalStorage().fsync_dir(folder)


def _sort_names(file: Path) -> None:
    """peft writes sets in the order of this process's string hashes: sorted, the same run gives the same bytes."""
    settings = json.loads(file.read_text(encoding="utf-8"))
    names = [key for key in ("target_modules", "modules_to_save") if isinstance(settings.get(key), list)]
    _write_json(file, {**settings, **{key: sorted(settings[key]) for key in names}})


def _merged(model: Any) -> torch.nn.Module:
    merged: torch.nn.Module = model.merge_and_unload()
    return merged


def _save_network(network: torch.nn.Module, folder: Path) -> None:
    if isinstance(network, PooledClassifier):
        network.encoder.save_pretrained(folder)  # type: ignore[operator]
        save_file(network.head_state(), str(folder / HEAD_NAME))
    else:
        network.save_pretrained(folder)  # type: ignore[operator]


def _save_tokenizer(source: Path, folder: Path) -> None:
    """The tokenizer's own files, and a tokenizer.json where it had none: every loader then reads the same ids."""
    for file in tokenizer_files(source):
        shutil.copyfile(file, folder / file.name)
    loaded = load_tokenizer(source)
    if not (folder / "tokenizer.json").is_file():
        loaded.backend.save(str(folder / "tokenizer.json"))
    settings_file = folder / "tokenizer_config.json"
    settings = json.loads(settings_file.read_text(encoding="utf-8")) if settings_file.is_file() else {}
    settings.update({name: text for name, text in loaded.special.items() if name not in settings})
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # reads tokenizer.json as it is, rebuilds nothing
    _write_json(settings_file, settings)


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(encode(content), ensure_ascii=False, indent=2, allow_nan=False)
    file.write_text(text + "\n", encoding="utf-8")


def _card(notes: Mapping[str, Any]) -> str:
    """A short model card: what it is, how it scored, how to load it."""
    rows = "\n".join(f"| {name} | {value:.4f} |" for name, value in notes["metrics"].items())
    labels = ", ".join(notes["labels"])
    lines = [
        "---",
        f"base_model: {json.dumps(notes['base_model'], ensure_ascii=False)}",
        f"pipeline_tag: {notes['task'].replace('causal_lm', 'text-generation').replace('_', '-')}",
        "tags: [stoker]",
        "---",
        "",
        _("# Fine-tuned from {base}").format(base=notes["base_model"]),
        "",
        _("Task: {task}. Optimizer steps: {step}.").format(task=notes["task"], step=notes["step"]),
    ]
    if labels:
        lines += ["", _("Labels: {labels}.").format(labels=labels)]
    if notes["thresholds"]:
        lines += [_("Thresholds per label, tuned on the validation data, stand in {file}.").format(file=NOTES_NAME)]
    if rows:
        lines += ["", "| metric | value |", "|---|---|", rows]
    lines += ["", _("Apply it with `stoker predict RUN FILE`; the weights load with transformers."), ""]
    return "\n".join(lines)
