"""How long a sample may be, in tokens: the job's seq_len against the model's positions, and its default."""

from collections.abc import Mapping
from typing import Any

from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.core.job import Job

DEFAULT_CLASSIFICATION = 512
DEFAULT_CAUSAL = 2048
# position ids of these start at padding_idx + 1 = 2, so two rows of the table are never used by a token
_OFFSET_BY_TWO = (
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
    "camembert",
    "data2vec-text",
    "longformer",
    "mpnet",
    "ibert",
)


def model_positions(config: Mapping[str, Any]) -> int | None:
    """Tokens that a model of this Hugging Face config can place; None where it has no limit (relative positions)."""
    inner = config.get("text_config") if isinstance(config.get("text_config"), Mapping) else config
    facts: Mapping[str, Any] = inner or config
    kind = str(facts.get("model_type", ""))
    if kind.startswith("deberta") and facts.get("position_biased_input") is False:
        return None
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"):
        value = facts.get(name)
        if isinstance(value, int) and value > 0:
            return value - 2 if kind in _OFFSET_BY_TWO else value
    return None


def embedding_rows(config: Mapping[str, Any]) -> int | None:
    """Rows of the token embedding, or None where the config does not say."""
    inner = config.get("text_config")
    value = config.get("vocab_size") or (inner.get("vocab_size") if isinstance(inner, Mapping) else None)
    return value if isinstance(value, int) else None


def resolve_seq_len(job: Job, config: Mapping[str, Any]) -> int:
    """The cut in tokens: train.seq_len, else the model's positions, at most 512 (classification) or 2048 (causal_lm).

    Raises DataError ST144 when train.seq_len is above the model's positions.
    """
    positions = model_positions(config)
    if job.train.seq_len is None:
        most = DEFAULT_CAUSAL if job.task == "causal_lm" else DEFAULT_CLASSIFICATION
        return min(most, positions) if positions else most
    if positions is not None and job.train.seq_len > positions:
        raise DataError(
            "ST144",
            _("seq_len {asked} is more than the {positions} positions of the model").format(
                asked=job.train.seq_len, positions=positions
            ),
            place=f"{job.source_path} train.seq_len".strip(),
            fix=_("set train.seq_len: {positions}; longer texts are cut there").format(positions=positions),
        )
    return job.train.seq_len
