"""Mixture-of-experts decoders: Qwen2-MoE, Qwen3-MoE and Mixtral. All experts are held, some compute each token.

Source of shapes: modeling_qwen3_moe.py, modeling_qwen2_moe.py and modeling_mixtral.py of transformers.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import MAX_LAYERS, ConfigReader
from stoker.catalogue.models.parts.decoder import (
    decoder_shape,
    grouped_heads,
    layer_groups,
    pre_norm_block,
    separate_attention,
)
from stoker.catalogue.models.parts.mlp import experts_mlp, gated_mlp, router, shared_mlp
from stoker.catalogue.models.parts.norm import rms_norm
from stoker.catalogue.models.parts.part import Part, dense, keeps, kernels
from stoker.core.i18n import _

_QWEN = ("qwen3_moe", "qwen2_moe")


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a Qwen3-MoE or Mixtral config."""
    hidden = config.size("hidden_size")
    heads = grouped_heads(config, dropout=config.frac("attention_dropout"))
    is_qwen = config.model_type in _QWEN
    bias = config.flag("attention_bias")
    attention = separate_attention(
        heads,
        hidden,
        qkv_bias=bias or config.flag("qkv_bias"),
        output_bias=bias,
        head_norm="llama" if config.model_type == "qwen3_moe" else None,
    )
    window = config.optional_size("sliding_window", most=10**8)
    if is_qwen and not config.flag("use_sliding_window"):
        window = None
    sparse = _sparse_layers(config) if is_qwen else config.layers()
    layers = layer_groups(
        heads, [window] * sparse, lambda _w: pre_norm_block(hidden, attention, _experts(config)), hidden
    )
    dense_count = config.layers() - sparse
    if dense_count:
        mlp = gated_mlp(hidden, config.size("intermediate_size"), config.text("hidden_act"))
        block = pre_norm_block(hidden, attention, mlp)
        layers += layer_groups(heads, [window] * dense_count, lambda _w: block, hidden, name="layers.dense")
    return decoder_shape(config, target, layers=layers, final_norm=rms_norm("norm", hidden))


def _experts(config: ConfigReader) -> Part:
    hidden = config.size("hidden_size")
    num_experts, top_k = expert_counts(config)
    kind = config.text("hidden_act")
    inner = config.size("moe_intermediate_size" if config.model_type in _QWEN else "intermediate_size")
    part = router(hidden, num_experts, top_k) + experts_mlp(
        hidden, inner, num_experts=num_experts, top_k=top_k, kind=kind
    )
    if config.model_type == "qwen2_moe":  # one more expert for every token, behind a gate of its own
        part += shared_mlp(hidden, config.size("shared_expert_intermediate_size"), kind, name="shared_expert")
        part += dense("shared_expert_gate", hidden, 1) + keeps("shared_expert.output", "other", hidden) + kernels(3)
    return part


def expert_counts(config: ConfigReader) -> tuple[int, int]:
    """(experts, experts per token). Raises ModelError ST205 where a token wants more than there are."""
    num_experts = config.size("num_experts", most=100_000)
    top_k = config.size("num_experts_per_tok", most=100_000)
    if top_k > num_experts:
        raise config.wrong(
            "num_experts_per_tok", _("{top} of {all} experts is impossible").format(top=top_k, all=num_experts)
        )
    return num_experts, top_k


def _sparse_layers(config: ConfigReader) -> int:
    """Layers with experts: every decoder_sparse_step-th that mlp_only_layers does not name."""
    step = config.size("decoder_sparse_step")
    named = config.sizes("mlp_only_layers", most=MAX_LAYERS, least=0, may_be_empty=True)
    return sum((index + 1) % step == 0 and index not in named for index in range(config.layers()))


FAMILY = Family(
    name="moe",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "qwen3_moe": {
            "vocab_size": 151936,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "hidden_act": "silu",
            "max_position_embeddings": 32768,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "use_sliding_window": False,
            "sliding_window": 4096,
            "attention_dropout": 0.0,
            "decoder_sparse_step": 1,
            "moe_intermediate_size": 768,
            "num_experts_per_tok": 8,
            "num_experts": 128,
            "mlp_only_layers": None,
        },
        "qwen2_moe": {
            "vocab_size": 151936,
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "hidden_act": "silu",
            "max_position_embeddings": 32768,
            "tie_word_embeddings": False,
            "qkv_bias": True,
            "use_sliding_window": False,
            "sliding_window": 4096,
            "attention_dropout": 0.0,
            "decoder_sparse_step": 1,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "num_experts_per_tok": 4,
            "num_experts": 60,
            "mlp_only_layers": None,
        },
        "mixtral": {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": None,
            "hidden_act": "silu",
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
            "sliding_window": None,
            "attention_dropout": 0.0,
            "num_experts_per_tok": 2,
            "num_local_experts": 8,
        },
    },
    build=build,
    renamed={"num_local_experts": "num_experts"},
)
