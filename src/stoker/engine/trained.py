"""A trained model read back from its folder: ordinary Hugging Face, our pooled head, or a peft adapter on its base."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.core.plan_io import read_plan
from stoker.core.run_config import RunConfig
from stoker.engine.build import build_model, quiet_transformers
from stoker.engine.export import HEAD_NAME, NOTES_NAME
from stoker.engine.pooled import PooledClassifier
from stoker.engine.weights_check import weight_names


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """`notes`: stoker.json. The model is in evaluation mode on `device`, fp32 on a CPU."""

    model: torch.nn.Module
    notes: Mapping[str, Any]
    device: torch.device
    folder: Path

    @property
    def uses_types(self) -> bool:
        """Whether the model tells the segments of a pair apart."""
        return int(getattr(self.model.config, "type_vocab_size", 0) or 0) > 1

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The model's logits for a batch on any device."""
        output = self.model(**{name: tensor.to(self.device) for name, tensor in inputs.items()})
        logits: torch.Tensor = output if isinstance(output, torch.Tensor) else output.logits
        return logits


def load_trained(folder: Path, device: torch.device) -> TrainedModel:
    """The model of an exported folder. Raises RunError ST410 to ST414, ST440, ST441."""
    notes = read_notes(folder)
    quiet_transformers()
    try:
        model = _load(folder, notes)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
        raise RunError(
            "ST414",
            _("the trained model cannot be loaded: {error}").format(error=(str(error).splitlines() or [""])[0][:200]),
            place=str(folder),
            fix=_("remove this folder and run the same `stoker run` again: it exports the model anew"),
        ) from error
    return TrainedModel(model=model.to(device).eval(), notes=notes, device=device, folder=folder)


def _load(folder: Path, notes: Mapping[str, Any]) -> torch.nn.Module:
    if notes["adapter"]:
        return _with_adapter(folder, notes)
    if notes["pooling"]:
        return _pooled(folder, notes)
    weight_names(folder)
    model: torch.nn.Module = _auto_class(notes["task"]).from_pretrained(folder, **_options())
    return model


def read_notes(folder: Path) -> dict[str, Any]:
    """stoker.json. Raises RunError ST441."""
    file = folder / NOTES_NAME
    try:
        notes = json.loads(file.read_text(encoding="utf-8"))
        for name in ("task", "problem", "labels", "thresholds", "pooling", "columns", "adapter", "max_length"):
            notes[name]
        if notes["problem"] == "multi_label" and len(notes["thresholds"]) != len(notes["labels"]):
            raise ValueError(_("there is not one threshold a label"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            "ST441",
            _("the notes of this model cannot be read: {error}").format(error=error),
            place=str(file),
            fix=_("run the same `stoker run` again: it exports the model anew"),
        ) from error
    return dict(notes)


def _options() -> dict[str, Any]:
    return {
        "local_files_only": True,
        "use_safetensors": True,
        "trust_remote_code": False,
        "dtype": torch.float32,
    }


def _auto_class(task: str) -> Any:
    import transformers

    names = {
        "causal_lm": "AutoModelForCausalLM",
        "image_classification": "AutoModelForImageClassification",
        "text_classification": "AutoModelForSequenceClassification",
    }
    return getattr(transformers, names[task])


def _pooled(folder: Path, notes: Mapping[str, Any]) -> torch.nn.Module:
    from transformers import AutoModel

    weight_names(folder)
    encoder = AutoModel.from_pretrained(folder, **_options())
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    model = PooledClassifier(encoder, len(notes["labels"]), notes["pooling"], 0.0)
    model.load_head_state(load_file(str(folder / HEAD_NAME)))
    return model


def _with_adapter(folder: Path, notes: Mapping[str, Any]) -> torch.nn.Module:
    """The base as the run's plan says, then the adapter's weights. Raises RunError ST440 where the plan is gone."""
    from peft import load_peft_weights, set_peft_model_state_dict

    plan_file = folder.parent / "plan.json"
    if not plan_file.is_file():
        raise RunError(
            "ST440",
            _("an adapter needs the plan.json of its run, which says what its base model is"),
            place=str(plan_file),
            fix=_("keep the model folder inside its run folder, or train with tune.merge: true"),
        )
    plan = read_plan(plan_file)
    config = RunConfig(micro_batch_size=1, gradient_accumulation_steps=1, global_batch_size=1)
    built = build_model(plan.job, plan.model, config, list(notes["labels"]))
    weights = load_peft_weights(str(folder), device="cpu")
    set_peft_model_state_dict(built.model, weights)
    if isinstance(built.network, PooledClassifier):
        built.network.load_head_state(load_file(str(folder / HEAD_NAME)))
    return built.model
