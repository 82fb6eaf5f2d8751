"""From a model name of a public measurement table to a shape: lenient where `api.resolve_model` is strict.

Only `stoker validate` reads names this way. A known name gives its published config; a name that states nothing but
a size (`7B GPT-like`) gives a generic decoder of that size, flagged, so that its interval widens; any other name is
None. No torch, no network; a look-up takes microseconds after the first.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from stoker.catalogue.models import FAMILIES
from stoker.catalogue.models.api import arch_from_config
from stoker.catalogue.models.lookup.bundled import bundled_models
from stoker.catalogue.models.lookup.generic import generic_config, is_generic_name
from stoker.catalogue.models.lookup.names import keys_of, stated_params
from stoker.core.job import Task
from stoker.core.ledger import ModelArch

PublishedKind = Literal["causal_lm", "encoder", "image"]
_TASKS: Final[dict[PublishedKind, Task]] = {
    "causal_lm": "causal_lm",
    "encoder": "text_classification",
    "image": "image_classification",
}
_TOLERANCE: Final = 0.2  # between a table's parameter count and the shape's: vocabularies and tied heads are told apart


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A model that a table names. `config`: as in Hugging Face's config.json, for `arch`; `hub_id`: where it is
    published, or `generic/SIZE`. `kind`: causal_lm (decoders and T5), encoder, or image. `is_generic`: no model of
    that name, only of that size. `notes`: what the shape leaves out."""

    hub_id: str
    kind: PublishedKind
    config: Mapping[str, Any]
    is_generic: bool = False
    notes: tuple[str, ...] = ()

    @property
    def task(self) -> Task:
        """The task whose head the model is measured with."""
        return _TASKS[self.kind]

    def arch(self, *, num_labels: int | None = None, image_size: int | None = None) -> ModelArch:
        """The shape with `num_labels` (default: 1000 for images, 2 for encoders), at `image_size` where given.

        Raises ModelError where the family cannot be built at that size.
        """
        labels = num_labels if num_labels is not None else {"image": 1000, "encoder": 2}.get(self.kind)
        return arch_from_config(self.config, task=self.task, num_labels=labels, name=self.hub_id, image_size=image_size)


def find_published(name: str, params: int | None = None) -> PublishedModel | None:
    """The model that a table calls `name`; `params`: the table's parameter count, where it gives one.

    None for an unknown name, and where `params` contradicts the shape of that name by more than a fifth.
    """
    index = _index()
    for key in keys_of(name):
        if key in index and _agrees(index[key], params):
            return index[key]
    if is_generic_name(name):
        size = params or stated_params(name)
        if size:
            config = MappingProxyType(generic_config(float(size), name))
            return PublishedModel(hub_id=f"generic/{size:.3g}", kind="causal_lm", config=config, is_generic=True)
    return None


def _agrees(model: PublishedModel, params: int | None) -> bool:
    if params is None:
        return True
    own = _num_params(model.hub_id)
    return abs(own - params) <= _TOLERANCE * own


@functools.lru_cache(maxsize=2048)
def _num_params(hub_id: str) -> int:
    return next(model for model in _index().values() if model.hub_id == hub_id).arch().num_params


@functools.cache
def _index() -> dict[str, PublishedModel]:
    """Every key of every name, strict ones before loose ones, earlier models before later ones."""
    kinds = _kinds()
    named: list[tuple[list[list[str]], PublishedModel]] = []
    for row in bundled_models():
        model = PublishedModel(hub_id=row.hub_id, kind=kinds[row.config["model_type"]], config=row.config)
        named.append(([list(keys_of(name)) for name in (row.hub_id, *row.aliases)], model))
    index: dict[str, PublishedModel] = {}
    for level in range(max(len(keys) for names, _model in named for keys in names)):
        for names, model in named:
            for keys in names:
                if level < len(keys):
                    index.setdefault(keys[level], model)
    return index


@functools.cache
def _kinds() -> dict[str, PublishedKind]:
    """Kind of each model_type: by modality, then by whether the family models language."""
    kinds: dict[str, PublishedKind] = {}
    for family in FAMILIES:
        kind: PublishedKind = "image" if family.modality == "image" else "encoder"
        for model_type in family.model_types:
            kinds[model_type] = "causal_lm" if "causal_lm" in family.tasks else kind
    return kinds
