"""From `job.model` to a shape: which model is meant, where its weights are, and its ledger of module groups.

Never imports torch or transformers, never uses the network. Parameter counts are exact for the task's head.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stoker.catalogue.models import FAMILIES
from stoker.catalogue.models.family import Family, Target
from stoker.catalogue.models.lookup.bundled import BundledModel, bundled_models, find_bundled
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.lookup.resolve import resolve_source
from stoker.core.errors import ModelError
from stoker.core.i18n import _
from stoker.core.job import Job, Task
from stoker.core.ledger import ModelArch
from stoker.core.plan import ResolvedModel

__all__ = ["BundledModel", "arch_from_config", "arch_of", "bundled_models", "resolve_model", "supported_model_types"]

_MAX_LABELS = 1_000_000


def resolve_model(job: Job, num_labels: int | None = None) -> tuple[ResolvedModel, ModelArch]:
    """The model that `job.model` names, and its shape for the job's task. Raises ModelError (ST2xx).

    `num_labels`: of the data where known, else what the job declares, else what the config says, else 2.
    """
    resolved = resolve_source(job)
    labels = num_labels if num_labels is not None else job.num_declared_labels
    return resolved, arch_of(resolved, task=job.task, num_labels=labels, image_size=job.train.image_size)


def arch_of(
    resolved: ResolvedModel, *, task: Task, num_labels: int | None = None, image_size: int | None = None
) -> ModelArch:
    """The shape of a model that was looked up, for `task`. Raises ModelError as `arch_from_config` does."""
    arch = arch_from_config(
        resolved.config,
        task=task,
        num_labels=num_labels,
        name=resolved.name,
        image_size=image_size,
        families=_families(resolved),
    )
    return replace(arch, is_approximate=True) if resolved.is_approximate else arch


def _families(resolved: ResolvedModel) -> tuple[Family, ...]:
    if not resolved.is_approximate:
        return FAMILIES
    from stoker.catalogue.models.tables import vision_language  # only for a model that has a tower

    return (vision_language.FAMILY,)


def arch_from_config(
    config: Mapping[str, Any],
    *,
    task: Task,
    num_labels: int | None = None,
    name: str,
    image_size: int | None = None,
    families: tuple[Family, ...] = FAMILIES,
) -> ModelArch:
    """The shape of a Hugging Face config for `task`. Raises ModelError ST204 (unknown type), ST205, ST210.

    `image_size`: edge in pixels, over the config's own. `families`: where to look for its model_type.
    """
    family, model_type = _family_of(config, name, families)
    if task not in family.tasks:
        raise ModelError(
            "ST210",
            _("{name} ({model_type}) cannot do {task}").format(name=name, model_type=model_type, task=task),
            place=f"model: {name}",
            fix=_("its tasks: {tasks}").format(tasks=", ".join(family.tasks)),
        )
    values = family.canonical(model_type, config)
    if image_size is not None and family.modality == "image":
        values["image_size"] = image_size
    reader = ConfigReader(values, name)
    labels = num_labels if num_labels is not None else _labels_of(reader)
    if not 1 <= labels <= _MAX_LABELS:
        raise reader.wrong("num_labels", _("{count} labels are impossible").format(count=labels))
    shape = family.build(reader, Target(task=task, num_labels=labels))
    bundled = find_bundled(name)
    return ModelArch(
        name=name,
        family=family.name,
        modality=family.modality,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_hidden_layers,
        groups=shape.groups,
        num_outputs=shape.num_outputs,
        vocab_size=shape.vocab_size,
        max_position_embeddings=shape.max_position_embeddings,
        image_size=shape.image_size,
        tokens_per_sample=shape.tokens_per_sample,
        tie_word_embeddings=shape.tie_word_embeddings,
        dropout=shape.dropout,
        hub_id=bundled.hub_id if bundled else None,
        source=bundled.source if bundled else "",
    )


def supported_model_types() -> tuple[str, ...]:
    """Every Hugging Face model_type that has a shape here, sorted."""
    return tuple(sorted(name for family in FAMILIES for name in family.model_types))


def _family_of(config: Mapping[str, Any], name: str, families: tuple[Family, ...]) -> tuple[Family, str]:
    model_type = config.get("model_type")
    for family in families:
        if isinstance(model_type, str) and model_type in family.model_types:
            return family, model_type
    raise ModelError(
        "ST204",
        _("unknown model_type {model_type}").format(model_type=repr(model_type)[:60]),
        place=f"model: {name}",
        fix=_("supported: {names}").format(names=", ".join(supported_model_types())),
    )


def _labels_of(reader: ConfigReader) -> int:
    """Labels that a config declares: num_labels, or the size of id2label; 2 as in transformers where it is silent."""
    declared = reader.values.get("num_labels")
    if declared is not None:
        return reader.size("num_labels", most=_MAX_LABELS)
    names = reader.values.get("id2label")
    return len(names) if isinstance(names, dict) and names else 2
