"""From a model name of a public measurement table to a shape: lenient where `api.resolve_model` is strict.

Only `stoker validate` reads names this way. A known name gives its published config; a name that states nothing but
a size (`7B GPT-like`) gives a generic decoder of that size, flagged, so that its interval widens; any other name is
None. No torch, no network; a look-up takes microseconds after the first.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from stoker.catalogue.models import FAMILIES, tables
from stoker.catalogue.models.api import arch_from_config
from stoker.catalogue.models.lookup.bundled import bundled_models
from stoker.catalogue.models.lookup.generic import generic_config, is_generic_name
from stoker.catalogue.models.lookup.named import named_models, same_shape_names
from stoker.catalogue.models.lookup.names import keys_of, stated_params, words_of
from stoker.core.job import Task
from stoker.core.ledger import ModelArch

PublishedKind = Literal["causal_lm", "encoder", "image"]
_TASKS: Final[dict[PublishedKind, Task]] = {
    "causal_lm": "causal_lm",
    "encoder": "text_classification",
    "image": "image_classification",
}
_FAMILIES: Final = (*FAMILIES, *tables.FAMILIES)
# Between a table's parameter count and the shape's: tables count tied heads twice, or leave embeddings out
_TOLERANCE: Final = 0.2
_SIZELESS_TOLERANCE: Final = 0.03  # a name without a size takes it from the parameter count, which must be near


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A model that a table names. `config`: as in Hugging Face's config.json, for `arch`; `hub_id`: where it is
    published, or `generic/SIZE`. `kind`: causal_lm (decoders and T5), encoder, or image. `is_generic`: the shape is
    one of that size, or leaves a part of the model out (`notes` says which), so that an interval must widen.
    `image_tokens`: tokens that an image adds to the length, for vision-language models."""

    hub_id: str
    kind: PublishedKind
    config: Mapping[str, Any]
    is_generic: bool = False
    notes: tuple[str, ...] = ()
    image_tokens: int | None = None

    @property
    def task(self) -> Task:
        """The task whose head the model is measured with."""
        return _TASKS[self.kind]

    def arch(self, *, num_labels: int | None = None, image_size: int | None = None) -> ModelArch:
        """The shape with `num_labels` (default: 1000 for images, 2 for encoders), at `image_size` where given.

        Raises ModelError where the family cannot be built at that size.
        """
        labels = num_labels if num_labels is not None else {"image": 1000, "encoder": 2}.get(self.kind)
        return arch_from_config(
            self.config,
            task=self.task,
            num_labels=labels,
            name=self.hub_id,
            image_size=image_size,
            families=_FAMILIES,
        )


def find_published(name: str, params: int | None = None) -> PublishedModel | None:
    """The model that a table calls `name`; `params`: the table's parameter count, where it gives one.

    Of several models of one name the nearest to `params` is meant (`Qwen2.5` alone, MPT's two 7B). None for an
    unknown name, and where `params` contradicts every shape of that name by more than a fifth.
    """
    index = _index()
    stated = _by_hub_id().get(name.strip().casefold())
    if stated is not None:
        return _nearest((stated,), params)
    for key in keys_of(name):
        found = _nearest(index.get(key, ()), params)
        if found is not None:
            return found
    if is_generic_name(name):
        size = params or stated_params(name)
        if size:
            config = MappingProxyType(generic_config(float(size), name))
            return PublishedModel(hub_id=f"generic/{size:.3g}", kind="causal_lm", config=config, is_generic=True)
    return _by_family(name, params) if params else None


def _nearest(
    models: tuple[PublishedModel, ...], params: int | None, tolerance: float = _TOLERANCE
) -> PublishedModel | None:
    """The one whose count is nearest to `params`, where near enough; without a count the first, if all are alike."""
    if not models:
        return None
    if params is None:
        counts = [_num_params(model) for model in models] if len(models) > 1 else [1]
        return models[0] if max(counts) <= (1.0 + tolerance) * min(counts) else None
    best = min(models, key=lambda model: abs(_num_params(model) - params))
    return best if abs(_num_params(best) - params) <= tolerance * params else None


def _by_family(name: str, params: int) -> PublishedModel | None:
    """`Llama 2` beside 6738415616: the model whose name starts so and goes on with a size, of that count."""
    key = "".join(words_of(name))
    if len(key) < 3 or stated_params(name) is not None:
        return None
    going_on = (
        models
        for other, models in _index().items()
        if other.startswith(key) and other[len(key) : len(key) + 1].isdigit()
    )
    return _nearest(tuple(model for models in going_on for model in models), params, _SIZELESS_TOLERANCE)


def _num_params(model: PublishedModel) -> int:
    return _count_of(model.hub_id.casefold())


@functools.lru_cache(maxsize=4096)
def _count_of(hub_id: str) -> int:
    return _by_hub_id()[hub_id].arch().num_params


@functools.cache
def _by_hub_id() -> Mapping[str, PublishedModel]:
    return {model.hub_id.casefold(): model for _names, model in _named()}


@functools.cache
def _named() -> tuple[tuple[tuple[str, ...], PublishedModel], ...]:
    """Every model with all its names: those that jobs can name first."""
    others: dict[str, list[str]] = {}
    for name, hub_id in same_shape_names().items():
        others.setdefault(hub_id, []).append(name)
    return tuple(((*names, *others.get(model.hub_id, ())), model) for names, model in _models())


def _models() -> Iterator[tuple[tuple[str, ...], PublishedModel]]:
    kinds = _kinds()
    for row in bundled_models():
        model = PublishedModel(hub_id=row.hub_id, kind=kinds[row.config["model_type"]], config=row.config)
        yield (row.hub_id, *row.aliases), model
    for named in named_models():
        yield (
            named.names,
            PublishedModel(
                hub_id=named.hub_id,
                kind=kinds[named.config["model_type"]],
                config=named.config,
                is_generic=named.is_approximate,
                notes=(named.note,) if named.note else (),
                image_tokens=named.image_tokens,
            ),
        )


@functools.cache
def _index() -> Mapping[str, tuple[PublishedModel, ...]]:
    """Models by every key of every name. A key as written outranks one with words left out."""
    levels: list[dict[str, list[PublishedModel]]] = []
    for names, model in _named():
        for name in names:
            # without its organisation a hub id is a looser name than a short one (klue/roberta-base)
            for level, key in enumerate(keys_of(name), start=1 if "/" in name else 0):
                while len(levels) <= level:
                    levels.append({})
                of_key = levels[level].setdefault(key, [])
                if model not in of_key:
                    of_key.append(model)
    index: dict[str, tuple[PublishedModel, ...]] = {}
    for keys in levels:
        for key, models in keys.items():
            index.setdefault(key, tuple(models))
    return index


@functools.cache
def _kinds() -> Mapping[str, PublishedKind]:
    """Kind of each model_type: by modality, then by whether the family models language."""
    kinds: dict[str, PublishedKind] = {}
    for family in _FAMILIES:
        kind: PublishedKind = "image" if family.modality == "image" else "encoder"
        for model_type in family.model_types:
            kinds[model_type] = "causal_lm" if "causal_lm" in family.tasks else kind
    return kinds
