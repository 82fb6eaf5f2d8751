"""Proves that models which only tables name have the parameters that transformers builds, where it has their class."""

import warnings
from typing import Any

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    AutoConfig,
    AutoModelForCausalLM,
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from stoker.catalogue.models.published import PublishedModel, find_published


def built(config: Any, kind: Any) -> int:
    """Parameters of `kind` on the meta device, shared ones once."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind.from_config(config) if hasattr(kind, "from_config") else kind(config)
    model.tie_weights()
    return sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())


def found(name: str) -> PublishedModel:
    model = find_published(name)
    assert model is not None
    return model


def own_head(model: PublishedModel) -> int:
    """transformers 5 ties the head of every T5; checkpoints since v1.1 have one of their own, which cards count."""
    arch = model.arch()
    assert arch.vocab_size is not None
    return 0 if arch.tie_word_embeddings else arch.vocab_size * arch.hidden_size


@pytest.mark.parametrize("name", ["t5-small", "t5-large", "t5-3b", "flan-t5-base", "flan-t5-xxl", "t0-3b"])
def test_t5(name: str) -> None:
    model = found(name)
    values = {key: value for key, value in model.config.items() if key != "model_type"}
    assert model.arch().num_params == built(T5Config(**values), T5ForConditionalGeneration) + own_head(model)


@pytest.mark.parametrize("name", ["mt5-small", "mt0-xxl"])
def test_mt5(name: str) -> None:
    model = found(name)
    values = {key: value for key, value in model.config.items() if key != "model_type"}
    assert model.arch().num_params == built(MT5Config(**values), MT5ForConditionalGeneration) + own_head(model)


@pytest.mark.parametrize("name", ["albert-base-v2", "albert-xxlarge-v2"])
def test_albert(name: str) -> None:
    model = found(name)
    defaults = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    values = {**defaults, **{key: value for key, value in model.config.items() if key != "model_type"}}
    assert model.arch().num_params == built(AlbertConfig(**values), AlbertForSequenceClassification)


@pytest.mark.parametrize(
    ("name", "model_type"),
    [
        ("starcoder2-3b", "starcoder2"),
        ("starcoder2-15b", "starcoder2"),
        ("olmo-7b", "olmo"),
        ("internlm3-8b", "internlm3"),
        ("gpt-neo-2.7b", "gpt_neo"),
    ],
)
def test_a_shape_of_another_family_is_near(name: str, model_type: str) -> None:
    """Tables' shapes borrow a family; what the notes leave out is under a thousandth."""
    model = found(name)
    arch = model.arch()
    config = AutoConfig.for_model(model_type)
    given = dict(model.config)
    heads = given.get("num_attention_heads") or given["n_head"]
    sizes = {
        "vocab_size": arch.vocab_size, "hidden_size": arch.hidden_size, "num_hidden_layers": arch.num_hidden_layers,
        "num_attention_heads": heads, "num_key_value_heads": given.get("num_key_value_heads", heads),
        "intermediate_size": given.get("intermediate_size", 4 * arch.hidden_size),
        "max_position_embeddings": given.get("n_positions", 2048),
        "tie_word_embeddings": arch.tie_word_embeddings, "head_dim": arch.hidden_size // heads,
    }  # fmt: skip
    if model_type == "gpt_neo":
        sizes = {"num_layers": arch.num_hidden_layers, "num_heads": heads, **sizes}
        sizes["attention_types"] = [[["global", "local"], arch.num_hidden_layers // 2]]
    config = type(config)(**{key: value for key, value in sizes.items() if value is not None})
    assert arch.num_params == pytest.approx(built(config, AutoModelForCausalLM), rel=1e-3)


_NANO = {
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", "num_hidden_layers": 52,
    "hidden_size": 2688, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 131072,
    "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "n_routed_experts": 128,
    "num_experts_per_tok": 6, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712,
    "n_shared_experts": 1, "intermediate_size": 1856,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "model_type", "values"),
    [
        ("qwen3-next", "qwen3_next", {}),
        ("nemotron-3-nano", "nemotron_h", _NANO),
        ("minimax-m2", "minimax_m2", {}),
        ("ernie-4.5-21b", "ernie4_5_moe", {}),
        ("command-r", "cohere", {}),
    ],
)
def test_hybrids_and_experts_are_near(name: str, model_type: str, values: dict[str, Any]) -> None:
    """The defaults of these config classes are the published model; convolutions and small biases are left out."""
    real = built(AutoConfig.for_model(model_type, **values), AutoModelForCausalLM)
    assert found(name).arch().num_params == pytest.approx(real, rel=1e-4)
