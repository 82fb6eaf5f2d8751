"""A small config of every model type in the catalogue, and what autograd really keeps for it."""

import warnings
from dataclasses import replace
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
)

from stoker.catalogue.models.api import arch_from_config
from stoker.core.job import Task
from stoker.core.ledger import ModelArch

BATCH, SEQ, LABELS = 4, 64, 3
_TEXT = {"vocab_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "pad_token_id": 0}
_IDS = {"bos_token_id": 1, "eos_token_id": 2}
_DECODER = {**_TEXT, **_IDS, "hidden_size": 64, "intermediate_size": 160, "max_position_embeddings": 128}
_GQA = {**_DECODER, "num_key_value_heads": 2}
_ENCODER = {**_TEXT, "hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 128}
_EXPERTS = {"num_experts_per_tok": 2, "head_dim": 16}
_LATENT = {"q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
           "n_routed_experts": 8, "moe_intermediate_size": 48, "first_k_dense_replace": 1}  # fmt: skip
_CONVNEXT = {"hidden_sizes": [16, 32, 64], "depths": [2, 2, 3], "num_stages": 3, "image_size": 64}

SHAPES: dict[str, dict[str, Any]] = {
    "bert": _ENCODER,
    "roberta": _ENCODER,
    "xlm-roberta": {**_ENCODER, "type_vocab_size": 1},
    "distilbert": {"vocab_size": 128, "dim": 64, "n_layers": 4, "n_heads": 4, "hidden_dim": 128,
                   "max_position_embeddings": 128},
    "electra": {**_ENCODER, "embedding_size": 32},
    "deberta-v2": {**_ENCODER, "relative_attention": True, "position_buckets": 16, "norm_rel_ebd": "layer_norm",
                   "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False},
    "modernbert": {**_ENCODER, **_IDS, "local_attention": 256, "cls_token_id": 1, "sep_token_id": 2},
    "llama": _GQA,
    "mistral": {**_GQA, "sliding_window": None},
    "smollm3": _GQA,
    "exaone": _GQA,
    "granite": _GQA,
    "hyperclovax": _GQA,
    "qwen2": _GQA,
    "qwen3": {**_GQA, "head_dim": 32},
    "qwen3_moe": {**_GQA, **_EXPERTS, "moe_intermediate_size": 48, "num_experts": 8, "mlp_only_layers": [1]},
    "qwen2_moe": {**_GQA, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "num_experts": 8,
                  "shared_expert_intermediate_size": 96},
    "deepseek_v3": {**_DECODER, **_LATENT, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1},
    "deepseek_v2": {**_DECODER, **_LATENT, "num_experts_per_tok": 2, "q_lora_rank": None},
    "glm4_moe": {**_GQA, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "n_routed_experts": 8, "head_dim": 16,
                 "attention_bias": True, "use_qk_norm": True},
    "mixtral": {**_GQA, **_EXPERTS, "num_local_experts": 4},
    "gemma": {**_GQA, "head_dim": 16},
    "gemma2": {**_GQA, "head_dim": 16, "sliding_window": 32},
    "gemma3_text": {**_GQA, "num_hidden_layers": 6, "num_key_value_heads": 4, "head_dim": 16, "sliding_window": 128},
    "phi": _DECODER,
    "phi3": _GQA,
    "gpt_oss": {**_GQA, **_EXPERTS, "num_local_experts": 4, "intermediate_size": 96, "sliding_window": 32},
    "exaone4": {**_GQA, "sliding_window": 128},
    "olmo2": {**_GQA, "num_key_value_heads": 4},
    "glm": {**_GQA, "head_dim": 16},
    "glm4": {**_GQA, "head_dim": 16},
    "opt": {**_TEXT, **_IDS, "hidden_size": 64, "ffn_dim": 128, "max_position_embeddings": 128},
    "gptj": {"vocab_size": 128, "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 128, "rotary_dim": 8, **_IDS,
             "pad_token_id": 0},
    "nemotron": _GQA,
    "gpt2": {"vocab_size": 128, "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 128, **_IDS, "pad_token_id": 0},
    "gpt_neox": _DECODER,
    "stablelm": {**_DECODER, "num_key_value_heads": 4},
    "falcon": {**_TEXT, **_IDS, "hidden_size": 64},
    "bloom": {"vocab_size": 128, "hidden_size": 64, "n_layer": 4, "n_head": 4, "pad_token_id": 0},
    "mpt": {"vocab_size": 128, "d_model": 64, "n_layers": 4, "n_heads": 4, "max_seq_len": 128, "pad_token_id": 0},
    "vit": {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 128,
            "image_size": 64, "patch_size": 8},
    "resnet": {"embedding_size": 16, "hidden_sizes": [32, 64, 128], "depths": [2, 2, 3], "image_size": 64},
    "efficientnet": {"image_size": 64, "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280,
                     "dropout_rate": 0.0},
    "convnext": _CONVNEXT,
    "convnextv2": _CONVNEXT,
}  # fmt: skip

# Dropout keys of the types whose defaults drop out; attention's own is apart: without a GPU it forces eager scores
HIDDEN_DROPOUT = {
    "bert": ("hidden_dropout_prob",),
    "roberta": ("hidden_dropout_prob",),
    "xlm-roberta": ("hidden_dropout_prob",),
    "electra": ("hidden_dropout_prob",),
    "deberta-v2": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "distilbert": ("dropout",),
    "gpt2": ("resid_pdrop", "embd_pdrop"),
    "opt": ("dropout",),
}
ATTENTION_DROPOUT = {
    "bert": "attention_probs_dropout_prob",
    "roberta": "attention_probs_dropout_prob",
    "xlm-roberta": "attention_probs_dropout_prob",
    "electra": "attention_probs_dropout_prob",
    "distilbert": "attention_dropout",
    "gpt2": "attn_pdrop",
}
_CLASSES = {
    "causal_lm": AutoModelForCausalLM,
    "text_classification": AutoModelForSequenceClassification,
    "image_classification": AutoModelForImageClassification,
}


def shape_of(model_type: str, *, dropout: float, attention_dropout: float = 0.0) -> dict[str, Any]:
    """The small config, with these dropout rates where the type has any."""
    shape = dict(SHAPES[model_type])
    shape.update(dict.fromkeys(HIDDEN_DROPOUT.get(model_type, ()), dropout))
    if model_type in ATTENTION_DROPOUT:
        shape[ATTENTION_DROPOUT[model_type]] = attention_dropout
    return {"model_type": model_type, **shape}


def build(config: dict[str, Any], task: Task, num_labels: int | None = LABELS, **kwargs: Any) -> torch.nn.Module:
    """transformers' own model of `config` with the head of `task`."""
    values = {key: value for key, value in config.items() if key != "model_type"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parsed = AutoConfig.for_model(config["model_type"], **values)
        parsed.use_cache = False
        if num_labels is not None:
            parsed.num_labels = num_labels
        model = _CLASSES[task].from_config(parsed, **kwargs)
    model.tie_weights()
    return model


def inputs_of(config: dict[str, Any], task: Task) -> dict[str, torch.Tensor]:
    """A batch for the small config."""
    generator = torch.Generator().manual_seed(0)
    if task == "image_classification":
        edge = config["image_size"]
        return {"pixel_values": torch.randn(BATCH, 3, edge, edge, generator=generator)}
    return {"input_ids": torch.randint(3, 128, (BATCH, SEQ), generator=generator)}


def kept_bytes(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> int:
    """Bytes of the distinct storages that autograd keeps for one forward, parameters apart."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, tuple[int, torch.Tensor]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters and storage.nbytes():
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)  # the tensor: its address must not be used again
        return tensor

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(**inputs)
    return sum(size for size, _ in kept.values())


def declared_bytes(arch: ModelArch, *, scores: bool = False) -> float:
    """The same from the ledger, in fp32; on a CPU dropout masks have the width of the data, not one byte."""
    seq = arch.tokens_per_sample or SEQ
    total = 0.0
    for group in arch.groups:
        for tensor in group.saved:
            if (tensor.role == "scores" and not scores) or (scores and tensor.name == "log_sum_exp"):
                continue
            as_here = replace(tensor, bytes_per_element=4.0) if tensor.name.endswith(".mask") else tensor
            total += group.repeats * BATCH * seq * as_here.bytes_per_token(4.0, seq)
    return total


def arch_of(config: dict[str, Any], task: Task, num_labels: int | None = LABELS) -> ModelArch:
    return arch_from_config(config, task=task, num_labels=num_labels, name=config["model_type"])
