"""Proves that a Hugging Face model needs no line from the user: loss and gradient norm are those of its own backward.

Families that differ in what blocks are called with: rotary tables, learned relative positions whose gradient runs
beside the hidden states (DeBERTa), sliding and full masks in turn (Gemma 2), positions in the embedding, patches.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from stoker.engine.tiers import TieredTrainer

_TEXT = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
_DECODER = {**_TEXT, "num_key_value_heads": 2, "pad_token_id": 0}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _causal(kind: str, **values: Any) -> Callable[[], Any]:
    return lambda: transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **values))


def _classes(kind: str, **values: Any) -> Callable[[], Any]:
    values = {"num_labels": 3, "pad_token_id": 0, **values}
    return lambda: transformers.AutoModelForSequenceClassification.from_config(
        transformers.AutoConfig.for_model(kind, **values)
    )


def _image() -> Any:
    config = transformers.ViTConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, image_size=16, patch_size=4,
        num_labels=3, **_NO_DROPOUT,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": _causal("llama", **_DECODER),
    "mistral": _causal("mistral", **_DECODER, sliding_window=4),
    "qwen2": _causal("qwen2", **_DECODER),
    "qwen3": _causal("qwen3", **_DECODER, head_dim=8),
    "gemma2": _causal("gemma2", **_DECODER, head_dim=8, sliding_window=4),
    "gemma3": _causal("gemma3_text", **_DECODER, head_dim=8, sliding_window=4),
    "phi3": _causal("phi3", **_DECODER),
    "olmo2": _causal("olmo2", **_DECODER),
    "qwen3_moe": _causal(
        "qwen3_moe", **_DECODER, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
    ),
    "gpt2": _causal(
        "gpt2",
        vocab_size=99,
        n_embd=32,
        n_layer=3,
        n_head=4,
        n_positions=64,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    ),
    "gpt_neox": _causal("gpt_neox", **_TEXT, max_position_embeddings=64),
    "opt": _causal(
        "opt",
        vocab_size=99,
        hidden_size=32,
        ffn_dim=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        word_embed_proj_dim=32,
        dropout=0.0,
        max_position_embeddings=64,
    ),
    "falcon": _causal("falcon", **_TEXT, max_position_embeddings=64),
    "bert": _classes("bert", **_TEXT, **_NO_DROPOUT),
    "roberta": _classes("roberta", **_TEXT, **_NO_DROPOUT, max_position_embeddings=64),
    "electra": _classes("electra", **_TEXT, **_NO_DROPOUT, embedding_size=16),
    "deberta-v2": _classes(
        "deberta-v2",
        **_TEXT,
        **_NO_DROPOUT,
        relative_attention=True,
        position_buckets=8,
        pos_att_type=["c2p", "p2c"],
        norm_rel_ebd="layer_norm",
    ),
    "modernbert": _classes("modernbert", **_TEXT, global_attn_every_n_layers=2, local_attention=4),
    "distilbert": _classes(
        "distilbert",
        vocab_size=99,
        dim=32,
        hidden_dim=64,
        n_layers=3,
        n_heads=4,
        dropout=0.0,
        attention_dropout=0.0,
        seq_classif_dropout=0.0,
    ),
    "llama classifier": _classes("llama", **_DECODER),
    "vit": _image,
}


def _batch(model: Any, seed: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(2, 3, 16, 16, generator=draw)}
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[1, 7:] = 0
    return {"input_ids": torch.randint(3, 99, (2, 10), generator=draw), "attention_mask": mask}


def _loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = model(**batch).logits.float()
    return logits.square().sum() * 1e-2 + logits.sigmoid().sum()


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradient_are_those_of_the_models_own_backward(family: str) -> None:
    torch.manual_seed(0)
    model = FAMILIES[family]()
    model.config.use_cache = False
    model.train()
    micros = [_batch(model, seed) for seed in (0, 1)]
    total = torch.stack([_loss(model, micro) for micro in micros]).sum()
    total.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    without = {name for name, p in model.named_parameters() if p.grad is None}
    model.zero_grad(set_to_none=True)
    trainer = TieredTrainer(model, loss=_loss, weight=lambda _b: 0.5, lr=1e-3)
    result = trainer.step(micros)
    assert result.loss == pytest.approx(total.item(), rel=1e-5)
    assert result.norm == pytest.approx(norm.item(), rel=1e-4)
    homes = trainer.assembly.homes
    assert {s.name for h in homes for s in h.layout.slots if s.index in h.absent} == without
    assert len(homes) == 3 + 2
