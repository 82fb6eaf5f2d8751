"""Vision-language models: the language model in full, the tower and the projector as parameters that do not learn.

A row's length counts the image tokens among its tokens. What the tower computes is left out, which is why such a
model is marked approximate. `text_config` is the language model's own config.
"""

from collections.abc import Mapping
from typing import Any

from stoker.catalogue.models import FAMILIES as LANGUAGE_FAMILIES
from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.part import group, kernels, weights
from stoker.core.i18n import _


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of the language model, and the tower."""
    from dataclasses import replace

    text = config.values.get("text_config")
    if not isinstance(text, Mapping):
        raise config.wrong("text_config", _("a mapping of keys is needed"))
    shape = _language_shape(text, config, target)
    tower = group("vision_tower", "embedding", weights(config.size("vision_params", most=10**11)) + kernels(1))
    return replace(shape, groups=(tower, *shape.groups))


def _language_shape(text: Mapping[str, Any], config: ConfigReader, target: Target) -> Shape:
    model_type = str(text.get("model_type"))
    for family in LANGUAGE_FAMILIES:
        if model_type in family.model_types and "causal_lm" in family.tasks:
            return family.build(ConfigReader(family.canonical(model_type, text), config.place), target)
    raise config.wrong("text_config", _("unknown model_type {model_type}").format(model_type=model_type))


FAMILY = Family(
    name="vision_language",
    modality="text",
    tasks=("causal_lm",),
    model_types={"vision_language": {"text_config": None, "vision_params": 0}},
    build=build,
)
