"""Tiny real models with their ledger beside them, and what contract tests measure on them."""

from collections.abc import Callable
from typing import Any

import torch
import transformers

from stoker.catalogue.models.api import arch_from_config
from stoker.core.job import DataSpec, Job, Task, TrainSpec, TuneSpec
from stoker.core.ledger import Ledger, ModelArch
from stoker.core.run_config import RunConfig
from stoker.techniques.precision import PRECISIONS

VOCAB, LABELS = 96, 3
# fp8 needs torchao, whose import is loud: tests/contract/test_fp8.py
BUILDABLE_PRECISIONS = [form for form in PRECISIONS if form.name != "fp8"]


def llama(*, tied: bool = False) -> tuple[torch.nn.Module, ModelArch]:
    """Three grouped-query blocks."""
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        use_cache=False,
    )
    return _build(transformers.LlamaForCausalLM, config, "causal_lm", None)


def bert() -> tuple[torch.nn.Module, ModelArch]:
    """Two encoder blocks with a pooler and a classifier, no dropout."""
    config = transformers.BertConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        num_labels=LABELS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return _build(transformers.BertForSequenceClassification, config, "text_classification", LABELS)


def electra() -> tuple[torch.nn.Module, ModelArch]:
    """Two blocks behind an embedding of another width, no dropout."""
    config = transformers.ElectraConfig(
        vocab_size=VOCAB,
        embedding_size=16,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        num_labels=LABELS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return _build(transformers.ElectraForSequenceClassification, config, "text_classification", LABELS)


def vit() -> tuple[torch.nn.Module, ModelArch]:
    """Two blocks over 4 patches and a class token."""
    config = transformers.ViTConfig(
        image_size=16,
        patch_size=8,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_labels=LABELS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return _build(transformers.ViTForImageClassification, config, "image_classification", LABELS)


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, ModelArch]]] = {
    "llama": llama,
    "llama-tied": lambda: llama(tied=True),
    "bert": bert,
    "electra": electra,
    "vit": vit,
}


def _build(kind: Any, config: Any, task: Task, num_labels: int | None) -> tuple[torch.nn.Module, ModelArch]:
    torch.manual_seed(0)
    config._attn_implementation = "sdpa"
    model = kind(config)
    arch = arch_from_config(config.to_dict(), task=task, num_labels=num_labels, name=f"tiny-{config.model_type}")
    return model, arch


def a_job(arch: ModelArch, *, optimizer: str = "adamw", **tune: Any) -> Job:
    """A job over `arch` with these `tune` keys."""
    task: Task = "image_classification" if arch.modality == "image" else "text_classification"
    if arch.num_outputs == arch.vocab_size:
        task = "causal_lm"
    data = DataSpec(num_samples=10, tokens_mean=8, tokens_p99=8, tokens_max=8)
    return Job(
        model="tiny",
        task=task,
        data=data,
        tune=TuneSpec(**tune),
        train=TrainSpec(optimizer=optimizer),  # type: ignore[arg-type]
    )


def a_config(**changes: Any) -> RunConfig:
    """One micro-batch of two samples, in fp32, unless changed."""
    return RunConfig(**{"micro_batch_size": 2, "gradient_accumulation_steps": 1, "global_batch_size": 2, **changes})


def a_batch(model: torch.nn.Module, *, samples: int = 2, tokens: int = 16) -> dict[str, torch.Tensor]:
    """Inputs with labels for any of the models."""
    draw = torch.Generator().manual_seed(1)
    if hasattr(model.config, "image_size"):
        pixels = torch.randn(samples, 3, 16, 16, generator=draw)
        return {"pixel_values": pixels, "labels": torch.arange(samples) % LABELS}
    ids = torch.randint(1, VOCAB, (samples, tokens), generator=draw)
    if "CausalLM" in type(model).__name__ or hasattr(model, "lm_head"):
        return {"input_ids": ids, "labels": ids}
    mask = torch.ones_like(ids)
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.arange(samples) % LABELS}


def param_bytes(model: torch.nn.Module) -> int:
    """Bytes of all parameters, tied ones once."""
    return sum(p.numel() * p.element_size() for p in model.parameters())


def ledger_weight_bytes(ledger: Ledger) -> float:
    """What the ledger declares for them, adapters included."""
    return sum(
        g.repeats * (g.num_params * g.weight_bytes_per_param + g.adapter_params * g.adapter_bytes_per_param)
        for g in ledger.groups
    )


def ledger_saved_bytes(ledger: Ledger, *, samples: int, tokens: int) -> float:
    """What the ledger declares to stay for backward, blocks only: `samples` sequences of `tokens`."""
    total = 0.0
    for g in ledger.groups:
        if g.kind != "block":
            continue
        if g.recomputed:
            total += g.repeats * g.input_elements * ledger.compute_bytes * samples * tokens
            continue
        per_token = sum(t.bytes_per_token(ledger.compute_bytes, tokens) for t in g.saved)
        fixed = sum(t.fixed_bytes(ledger.compute_bytes) for t in g.saved)
        total += g.repeats * (per_token * samples * tokens + fixed)
    return total


def saved_while_alive(model: torch.nn.Module, batch: dict[str, torch.Tensor], number_format: Any) -> int:
    """Bytes of storages that a finished forward still holds for backward, parameters apart, weights' copies not."""
    import weakref

    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    alive: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    class Held:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor

    def pack(tensor: torch.Tensor) -> Held:
        held = Held(tensor)
        alive[id(held)] = held
        return held

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held.tensor), number_format.autocast("cpu"):
        output = model(**batch)
    storages = [held.tensor.untyped_storage() for held in alive.values()]
    sizes = {s.data_ptr(): s.nbytes() for s in storages if s.data_ptr() not in weights}
    del output
    return sum(sizes.values())


def saved_bytes_of(model: torch.nn.Module, batch: dict[str, torch.Tensor], number_format: Any) -> int:
    """Bytes of tensors that autograd keeps for backward, each storage once, parameters and their casts apart."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    shapes = {tuple(p.shape) for p in model.parameters()} | {
        tuple(p.T.shape) for p in model.parameters() if p.ndim == 2
    }
    kept: dict[int, int] = {}
    alive = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights and tuple(tensor.shape) not in shapes:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), number_format.autocast("cpu"):
        model(**batch)
    return sum(kept.values())
