"""How an encoder's tokens become one vector when the job says `auto`: what the model was trained with.

Sources, in order: the sentence-transformers file `1_Pooling/config.json` in the model folder; a name that is known
for it; weights that hold an encoder alone (no pooler, no pre-training head), which is how sentence encoders are
published and what leaves a first-token head nothing to start from. Otherwise the architecture's own head is right.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from stoker.engine.pooled import Pooling

_SENTENCE_TRANSFORMERS: Mapping[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
_MEAN_POOLED_NAMES = re.compile(r"(^|[/_-])(e5|minilm|mpnet|gte|labse|sbert|sroberta|simcse)([/_-]|$)", re.IGNORECASE)
_FIRST_TOKEN_TYPES = frozenset(
    ("albert", "bert", "camembert", "deberta-v2", "distilbert", "electra", "roberta", "xlm-roberta")
)
_LAST_TOKEN_TYPES = frozenset(("gemma", "gemma2", "llama", "mistral", "phi3", "qwen2", "qwen3"))


def choose_pooling(
    asked: str, *, name: str, folder: Path | None, config: Mapping[str, Any], weight_names: Collection[str]
) -> Pooling | None:
    """The pooling of our own head, or None where the architecture's own classification head is to be used.

    `asked`: `tune.pooling`. `weight_names`: tensors in the model folder (empty: random weights).
    """
    model_type = str(config.get("model_type", ""))
    if asked == "auto":
        return _trained_with(name, folder, config, weight_names)
    if (asked == "first" and model_type in _FIRST_TOKEN_TYPES) or (asked == "last" and model_type in _LAST_TOKEN_TYPES):
        return None
    pooling: Pooling = asked  # type: ignore[assignment]  # checked by the job's schema
    return pooling


def _trained_with(
    name: str, folder: Path | None, config: Mapping[str, Any], weight_names: Collection[str]
) -> Pooling | None:
    if folder is None or not weight_names:
        return None
    if any(key.startswith(("classifier.", "score.")) for key in weight_names):
        return None  # fine-tuned for classification already: go on with that head
    stated = folder / "1_Pooling" / "config.json"
    if stated.is_file():
        modes = json.loads(stated.read_text(encoding="utf-8"))
        return next((how for key, how in _SENTENCE_TRANSFORMERS.items() if modes.get(key)), "mean")
    architectures = config.get("architectures") or [""]
    encoder_alone = str(architectures[0]).endswith("Model") and not any("pooler." in key for key in weight_names)
    encoder = str(config.get("model_type", "")) in _FIRST_TOKEN_TYPES
    return "mean" if encoder and (encoder_alone or _MEAN_POOLED_NAMES.search(name)) else None
