"""gpt-oss: mixture of experts with biases, window and full layers in turn, a learned sink per head.

The sink enters the softmax, so that transformers has no kernel for it in PyTorch's own attention: scores are kept
unless an extra flash kernel is installed. Source of shapes: modeling_gpt_oss.py of transformers.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.moe import expert_counts
from stoker.catalogue.models.parts.decoder import (
    decoder_shape,
    grouped_heads,
    layer_groups,
    layer_windows,
    separate_attention,
)
from stoker.catalogue.models.parts.mlp import experts_mlp, router
from stoker.catalogue.models.parts.norm import rms_norm
from stoker.catalogue.models.parts.part import keeps, kernels, weights


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a gpt-oss config."""
    hidden, inner = config.size("hidden_size"), config.size("intermediate_size")
    num_experts, top_k = expert_counts(config)
    heads = grouped_heads(config, dropout=config.frac("attention_dropout"))
    bias = config.flag("attention_bias")
    expanded = 2 * (heads.query_width - heads.kv_width)  # eager attention repeats key and value for each query head
    block = (
        rms_norm("input_layernorm", hidden, style="gemma")
        + separate_attention(heads, hidden, qkv_bias=bias, output_bias=bias, always_scores=True)
        + keeps("repeated_key_value", "attention", expanded)
        + weights(heads.num_heads)  # sinks
        + rms_norm("post_attention_layernorm", hidden, style="gemma")
        + router(hidden, num_experts, top_k, bias=True, softmax_all=False)
        # gate and up clamped (input and bool masks), sigmoid, its product, up + 1
        + experts_mlp(hidden, inner, num_experts=num_experts, top_k=top_k, bias=True, gate_tensors=6)
        + kernels(12)
    )
    layers = layer_groups(
        heads,
        layer_windows(config, config.optional_size("sliding_window", most=10**8), every=2),
        lambda _window: block,
        hidden,
    )
    return decoder_shape(config, target, layers=layers, final_norm=rms_norm("norm", hidden, style="gemma"))


FAMILY = Family(
    name="gpt_oss",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "gpt_oss": {
            "vocab_size": 201088,
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "num_hidden_layers": 36,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
            "sliding_window": 128,
            "layer_types": None,
            "hidden_act": "silu",
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
            "attention_bias": True,
            "attention_dropout": 0.0,
        }
    },
    build=build,
    renamed={"num_local_experts": "num_experts"},
)
