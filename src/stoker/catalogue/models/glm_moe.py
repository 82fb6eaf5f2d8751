"""GLM-4.5 and 4.6 (and Air, INTELLECT-3): grouped heads with biases, first layers dense, routed and shared experts.

Source of shapes: modeling_glm4_moe.py of transformers, without the layer that predicts a second token.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.moe import expert_counts
from stoker.catalogue.models.parts.decoder import (
    decoder_shape,
    grouped_heads,
    layer_groups,
    pre_norm_block,
    separate_attention,
)
from stoker.catalogue.models.parts.mlp import experts_mlp, gated_mlp, shared_mlp, sigmoid_router
from stoker.catalogue.models.parts.norm import rms_norm


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a GLM-4-MoE config."""
    hidden = config.size("hidden_size")
    heads = grouped_heads(config, dropout=config.frac("attention_dropout"))
    attention = separate_attention(
        heads,
        hidden,
        qkv_bias=config.flag("attention_bias"),
        head_norm="llama" if config.flag("use_qk_norm") else None,
        partial_rotary=True,
    )
    kind = config.text("hidden_act")
    num_experts, top_k = expert_counts(config)
    inner = config.size("moe_intermediate_size")
    sparse = (
        sigmoid_router(hidden, num_experts, top_k)
        + experts_mlp(hidden, inner, num_experts=num_experts, top_k=top_k, kind=kind)
        + shared_mlp(hidden, inner * config.size("n_shared_experts"), kind)
    )
    dense_block = pre_norm_block(hidden, attention, gated_mlp(hidden, config.size("intermediate_size"), kind))
    sparse_block = pre_norm_block(hidden, attention, sparse)
    num_dense = min(config.size("first_k_dense_replace", least=0), config.layers())
    layers = layer_groups(heads, [None] * num_dense, lambda _w: dense_block, hidden, name="layers.dense")
    layers += layer_groups(heads, [None] * (config.layers() - num_dense), lambda _w: sparse_block, hidden)
    return decoder_shape(config, target, layers=layers, final_norm=rms_norm("norm", hidden))


FAMILY = Family(
    name="glm_moe",
    modality="text",
    tasks=("causal_lm",),
    model_types={
        "glm4_moe": {
            "vocab_size": 151552,
            "hidden_size": 4096,
            "intermediate_size": 10944,
            "num_hidden_layers": 46,
            "num_attention_heads": 96,
            "num_key_value_heads": 8,
            "hidden_act": "silu",
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "moe_intermediate_size": 1408,
            "num_experts_per_tok": 8,
            "n_shared_experts": 1,
            "n_routed_experts": 128,
            "first_k_dense_replace": 1,
            "use_qk_norm": False,
        }
    },
    build=build,
    renamed={"n_routed_experts": "num_experts"},
)
