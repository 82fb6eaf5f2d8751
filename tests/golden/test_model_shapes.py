"""Proves, without torch, that shapes give the published parameter counts: those of model cards where a card states
one, else those of transformers 5.24 (which tests/contract builds anew), and the golden numbers of the planner."""

import csv
from pathlib import Path

import pytest

from stoker.catalogue.models.api import arch_from_config, bundled_models
from stoker.catalogue.models.lookup.bundled import find_bundled
from stoker.core.job import Task
from stoker.core.ledger import ModelArch

_ROWS = list(csv.DictReader(Path(__file__).with_name("model_params.csv").read_text(encoding="utf-8").splitlines()))


def arch_of(name: str, task: Task, num_labels: int | None = None, image_size: int | None = None) -> ModelArch:
    model = find_bundled(name)
    assert model is not None
    return arch_from_config(model.config, task=task, num_labels=num_labels, name=name, image_size=image_size)


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row["hub_id"])
def test_parameter_count(row: dict[str, str]) -> None:
    labels = int(row["num_labels"]) if row["num_labels"] else None
    arch = arch_of(row["hub_id"], row["task"], labels)  # type: ignore[arg-type]
    assert arch.num_params == int(row["num_params"])


def test_every_bundled_shape_has_a_golden_count() -> None:
    assert {row["hub_id"] for row in _ROWS} == {model.hub_id for model in bundled_models()}
    assert len(_ROWS) >= 60


def test_llama_3_1_8b() -> None:
    arch = arch_of("llama-3.1-8b", "causal_lm")
    assert arch.num_params == 8_030_261_248
    assert arch.num_outputs == arch.vocab_size == 128_256
    # cases 51 and 53: the key-value heads are the config's own
    attention = next(group.attention for group in arch.groups if group.attention is not None)
    assert 2 * 2 * arch.num_hidden_layers * attention.num_kv_heads * attention.head_dim == 131_072


def test_kcelectra_with_ten_labels() -> None:
    assert arch_of("kcelectra-base", "text_classification", 10).num_params == 127_784_458


def test_qwen3_30b_a3b_holds_30_billion_and_computes_with_3() -> None:
    arch = arch_of("qwen3-30b-a3b", "causal_lm")
    assert arch.num_params == 30_532_122_624
    assert arch.active_params == pytest.approx(3.3e9, rel=0.02)  # model card: 3.3B activated


@pytest.mark.parametrize(("name", "active"), [("gpt-oss-20b", 3.6e9), ("gpt-oss-120b", 5.1e9)])
def test_gpt_oss_active_share(name: str, active: float) -> None:
    """2508.10925, table 1, whose active counts leave the embedding out but not the unembedding."""
    arch = arch_of(name, "causal_lm")
    assert arch.active_params - arch.groups[0].num_params == pytest.approx(active, rel=0.01)


@pytest.mark.parametrize(
    ("name", "sliding", "full", "window"),
    [("gpt-oss-120b", 18, 18, 128), ("gemma-2-9b", 21, 21, 4096), ("exaone-4.0-32b", 48, 16, 4096),
     ("gemma-3-1b", 22, 4, 512)],
)  # fmt: skip
def test_window_layers_are_groups_of_their_own(name: str, sliding: int, full: int, window: int) -> None:
    blocks = [group for group in arch_of(name, "causal_lm").groups if group.attention is not None]
    counts = {group.attention.window: group.repeats for group in blocks if group.attention is not None}
    assert counts == {window: sliding, None: full}


def test_head_size_is_the_configs_not_width_over_heads() -> None:
    blocks = [group for group in arch_of("qwen3-4b", "causal_lm").groups if group.attention is not None]
    attention = blocks[0].attention
    assert attention is not None
    assert (attention.num_heads, attention.num_kv_heads, attention.head_dim) == (32, 8, 128)  # case 51; 2560 / 32 = 80


def test_modern_block_keeps_what_the_formula_says() -> None:
    """PLANNER.md: T x [2 x (6h + 2k + 3f) + 4a] + 8hT for eager fp32 RMSNorm + 2fT for unfused SiLU, in bf16."""
    arch = arch_of("llama-3.1-8b", "causal_lm")
    block = next(group for group in arch.groups if group.kind == "block")
    kept = sum(t.bytes_per_token(2.0, 2048.0) for t in block.saved if t.role != "scores")
    hidden, kv, inner, heads = 4096, 1024, 14336, 32
    formula = 2 * (6 * hidden + 2 * kv + 3 * inner) + 4 * heads + 8 * hidden + 2 * inner
    assert kept == pytest.approx(formula, rel=0.001)


def test_original_transformer_block_keeps_34_bytes_per_element() -> None:
    """2205.05198, equation 2: s x b x h x 34 for the fused-attention part, s x s x a x b x 5 for the scores."""
    arch = arch_of("google-bert/bert-large-uncased", "text_classification", 2)
    block = next(group for group in arch.groups if group.kind == "block")
    kept = sum(t.bytes_per_token(2.0, 512.0) for t in block.saved if t.role != "scores")
    assert kept == pytest.approx(34 * 1024, rel=0.005)
    scores = sum(t.bytes_per_token(2.0, 1.0) for t in block.saved if t.role == "scores")
    assert scores == 5 * 16


@pytest.mark.parametrize(
    ("name", "size", "gmacs"),
    [("resnet-50", 224, 4.11), ("resnet-18", 224, 1.82), ("efficientnet-b0", 224, 0.39), ("convnext-tiny", 224, 4.47)],
)  # fmt: skip
def test_multiply_adds_of_convolutional_networks(name: str, size: int, gmacs: float) -> None:
    """Published multiply-adds: timm's results table, same image size."""
    arch = arch_of(name, "image_classification", 1000, size)
    assert sum(g.repeats * g.flops_per_token for g in arch.groups) / 2e9 == pytest.approx(gmacs, rel=0.02)


def test_image_size_changes_tokens_and_positions() -> None:
    arch = arch_of("vit-base-patch16-224", "image_classification", 1000, 384)
    assert arch.tokens_per_sample == 577
    assert arch.num_params == arch_of("vit-base-patch16-384", "image_classification", 1000).num_params
    assert arch_of("resnet-50", "image_classification", 10, 128).tokens_per_sample == 1
