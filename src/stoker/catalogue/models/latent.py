"""Multi-head latent attention with routed and shared experts: DeepSeek V2, V3 and R1, Kimi K2, Moonlight.

Keys and values come out of one narrow latent per token, which is all that a cache keeps beside the rotary part of
the key (2405.04434, section 2.1): kv_lora_rank + qk_rope_head_dim elements. The first layers are dense.
Source of shapes: modeling_deepseek_v2.py and modeling_deepseek_v3.py of transformers; the layer that predicts a
second token (MTP) is left out, as there.
"""

from dataclasses import dataclass

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.moe import expert_counts
from stoker.catalogue.models.parts.attention import Heads, input_of, rotary, scores
from stoker.catalogue.models.parts.decoder import decoder_shape, pre_norm_block
from stoker.catalogue.models.parts.mlp import experts_mlp, gated_mlp, shared_mlp, sigmoid_router
from stoker.catalogue.models.parts.norm import rms_norm
from stoker.catalogue.models.parts.part import FP32_BYTES, Part, dense, group, keeps, keeps_input, kernels
from stoker.core.ledger import Attention, ModuleGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class _Latent:
    """Widths of one head (`nope`, `rope`, `value`) and of the latents of query (None: no latent) and key-value."""

    num_heads: int
    nope: int
    rope: int
    value: int
    query_rank: int | None
    kv_rank: int

    @property
    def query_width(self) -> int:
        return self.num_heads * (self.nope + self.rope)

    @property
    def value_width(self) -> int:
        return self.num_heads * self.value


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a DeepSeek config."""
    hidden = config.size("hidden_size")
    latent = _Latent(
        num_heads=config.size("num_attention_heads"),
        nope=config.size("qk_nope_head_dim"),
        rope=config.size("qk_rope_head_dim"),
        value=config.size("v_head_dim"),
        query_rank=config.optional_size("q_lora_rank"),
        kv_rank=config.size("kv_lora_rank"),
    )
    attention = _attention(config, latent)
    num_dense = min(config.size("first_k_dense_replace", least=0), config.layers())
    plain = gated_mlp(hidden, config.size("intermediate_size"), config.text("hidden_act"))
    layers = _layers("layers.dense", num_dense, pre_norm_block(hidden, attention, plain), latent, hidden)
    if config.layers() > num_dense:
        block = pre_norm_block(hidden, attention, _experts(config))
        layers += _layers("layers", config.layers() - num_dense, block, latent, hidden)
    return decoder_shape(config, target, layers=layers, final_norm=rms_norm("norm", hidden))


def _layers(name: str, count: int, block: Part, latent: _Latent, hidden: int) -> tuple[ModuleGroup, ...]:
    if not count:
        return ()
    shape = Attention(
        num_heads=latent.num_heads,
        num_kv_heads=latent.num_heads,
        head_dim=latent.nope + latent.rope,
        value_head_dim=latent.value,
        kv_cache_elements=latent.kv_rank + latent.rope,
        causal=True,
    )
    return (group(name, "block", block, repeats=count, attention=shape, input_elements=hidden),)


def _attention(config: ConfigReader, latent: _Latent) -> Part:
    hidden, bias = config.size("hidden_size"), config.flag("attention_bias")
    first = "q_proj" if latent.query_rank is None else "q_a_proj"
    part = input_of(hidden, first, "kv_a_proj_with_mqa")
    if latent.query_rank is None:
        part += dense("q_proj", hidden, latent.query_width)
    else:
        part += dense("q_a_proj", hidden, latent.query_rank, bias=bias)
        part += rms_norm("q_a_layernorm", latent.query_rank) + keeps_input(latent.query_rank, "q_b_proj")
        part += dense("q_b_proj", latent.query_rank, latent.query_width)
    expanded = latent.num_heads * (latent.nope + latent.value)
    part += dense("kv_a_proj_with_mqa", hidden, latent.kv_rank + latent.rope, bias=bias)
    part += rms_norm("kv_a_layernorm", latent.kv_rank) + keeps_input(latent.kv_rank, "kv_b_proj")
    part += dense("kv_b_proj", latent.kv_rank, expanded)
    heads = Heads(
        num_heads=latent.num_heads, num_kv_heads=latent.num_heads, head_dim=latent.nope + latent.rope,
        dropout=config.frac("attention_dropout"),
    )  # fmt: skip
    return (
        part
        + rotary()
        # query and key are put together anew; value stays a view of the expanded latent
        + keeps("query_key_value", "attention", 2 * latent.query_width + expanded)
        + keeps("attention_output", "attention", latent.value_width)
        + keeps("log_sum_exp", "attention", latent.num_heads, bytes_per_element=FP32_BYTES)
        + scores(heads)
        + kernels(6)
        + keeps_input(latent.value_width, "o_proj")
        + dense("o_proj", latent.value_width, hidden, bias=bias)
    )


def _experts(config: ConfigReader) -> Part:
    hidden, inner = config.size("hidden_size"), config.size("moe_intermediate_size")
    num_experts, top_k = expert_counts(config)
    kind = config.text("hidden_act")
    return (
        sigmoid_router(hidden, num_experts, top_k)
        + experts_mlp(hidden, inner, num_experts=num_experts, top_k=top_k, kind=kind)
        + shared_mlp(hidden, inner * config.size("n_shared_experts"), kind)
    )


_V2 = {
    "vocab_size": 102400,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "first_k_dense_replace": 0,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_intermediate_size": 1407,
}

FAMILY = Family(
    name="latent",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "deepseek_v3": {
            **_V2,
            "vocab_size": 129280,
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "moe_intermediate_size": 2048,
            "num_hidden_layers": 61,
            "num_attention_heads": 128,
            "n_shared_experts": 1,
            "n_routed_experts": 256,
            "num_experts_per_tok": 8,
            "first_k_dense_replace": 3,
            "max_position_embeddings": 4096,
        },
        "deepseek_v2": _V2,
    },
    build=build,
    renamed={"n_routed_experts": "num_experts"},
)
