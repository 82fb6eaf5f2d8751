"""What a model family must say: its model types with their defaults, its tasks, and how a config becomes groups."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.core.job import Task
from stoker.core.ledger import ModuleGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the model is built for: the task and the width of its last layer (None: as the config says)."""

    task: Task
    num_labels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a family makes of a config. Fields as in ModelArch."""

    groups: tuple[ModuleGroup, ...]
    hidden_size: int
    num_hidden_layers: int
    num_outputs: int
    vocab_size: int | None = None
    max_position_embeddings: int | None = None
    image_size: int | None = None
    tokens_per_sample: int | None = None
    tie_word_embeddings: bool = False
    dropout: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family. `model_types`: Hugging Face model_type -> defaults of the keys that shape the model, as in the
    config class of transformers (tests/contract compares them). `renamed`: a config's own name of a key -> the
    common name that `build` reads."""

    name: str
    modality: Literal["text", "image"]
    tasks: tuple[Task, ...]
    model_types: Mapping[str, Mapping[str, Any]]
    build: Callable[[ConfigReader, Target], Shape]
    renamed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def canonical(self, model_type: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """`config` over the defaults of `model_type`, keys by their common names."""
        merged = {self.renamed.get(key, key): value for key, value in self.model_types[model_type].items()}
        merged.update({self.renamed.get(key, key): value for key, value in config.items()})
        merged["model_type"] = model_type
        return merged
