"""Hybrids of attention with a linear mixer (Mamba-2, gated delta rule) and experts: Nemotron 3, Qwen3-Next.

A mixer is its two projections and a scan whose cost per token does not grow with the length; the scan is taken as
4 FLOPs per element of its state and token (2405.21060, section 6), its chunk states as kept like the projections.
Sources of shapes: the models' config.json; the counts that tests/golden pins are those of their cards.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import MAX_LAYERS, ConfigReader
from stoker.catalogue.models.parts.attention import input_of
from stoker.catalogue.models.parts.decoder import decoder_shape, grouped_heads, layer_groups, separate_attention
from stoker.catalogue.models.parts.mlp import activation, plain_mlp, shared_mlp, sigmoid_router
from stoker.catalogue.models.parts.norm import rms_norm
from stoker.catalogue.models.parts.part import Part, dense, group, keeps, keeps_input, kernels
from stoker.core.ledger import ModuleGroup


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a hybrid config; each kind of layer is a group with its own norm."""
    hidden = config.size("hidden_size")
    heads = grouped_heads(config)
    attention = separate_attention(heads, hidden)
    if config.flag("gated_attention"):  # the query projection brings a gate as wide as itself
        attention += dense("q_gate", hidden, heads.query_width) + keeps("gate", "attention", 2 * heads.query_width)
    norm = rms_norm("norm", hidden) + kernels(1)
    groups: list[ModuleGroup] = [
        group("mixers", "block", norm + _mixer(config), repeats=config.size("num_mixer_layers", most=MAX_LAYERS),
              input_elements=hidden),
        *layer_groups(heads, [None] * config.size("num_attention_layers", most=MAX_LAYERS),
                      lambda _w: norm + attention, hidden, name="attention"),
        group("experts", "block", norm + _experts(config), repeats=config.size("num_moe_layers", most=MAX_LAYERS),
              input_elements=hidden),
    ]  # fmt: skip
    return decoder_shape(config, target, layers=groups, final_norm=rms_norm("norm_f", hidden))


def _mixer(config: ConfigReader) -> Part:
    hidden, width, inner = config.size("hidden_size"), config.size("mixer_in_width"), config.size("mixer_inner")
    state = config.size("mixer_state")
    return (
        input_of(hidden, "in_proj")
        + dense("in_proj", hidden, width)
        + keeps("conv.input", "attention", width)
        + keeps("conv.output", "activation_input", 2 * (width - inner))
        + Part(flops=4.0 * inner * state)
        + keeps("scan", "attention", 2 * inner)
        + rms_norm("mixer.norm", inner)
        + keeps_input(inner, "out_proj")
        + dense("out_proj", inner, hidden)
        + kernels(10)
    )


def _experts(config: ConfigReader) -> Part:
    """Routed experts (maybe on a latent narrower than the block) and shared ones, gated or with squared ReLU."""
    hidden, inner, kind = config.size("hidden_size"), config.size("moe_intermediate_size"), config.text("hidden_act")
    num_experts, top_k = config.size("num_experts"), config.size("num_experts_per_tok")
    latent = config.optional_size("moe_latent_size")
    width = latent or hidden
    gated = config.flag("gated_experts")
    share, shared = top_k / num_experts, config.size("shared_intermediate_size")
    up = 2 * inner if gated else inner
    part = (
        sigmoid_router(hidden, num_experts, top_k)
        + dense("experts.up_proj", width, up, count=num_experts, active_frac=share)
        + dense("experts.down_proj", inner, width, count=num_experts, active_frac=share)
        + keeps_input(top_k * width, "experts.up_proj")
        + activation("experts", kind, top_k * up)
        + keeps_input(top_k * inner, "experts.down_proj")
        + keeps("experts.output", "other", top_k * width)
        + kernels(12)
    )
    if latent is not None:
        part += dense("latent_down", hidden, latent) + dense("latent_up", latent, hidden)
        part += keeps_input(latent, "latent_up")
    if gated:
        return part + shared_mlp(hidden, shared, kind)
    return part + plain_mlp(("shared.up", "shared.down"), hidden, shared, kind, bias=False)


FAMILY = Family(
    name="hybrid",
    modality="text",
    tasks=("causal_lm",),
    model_types={
        "hybrid": {
            "vocab_size": 131072,
            "hidden_size": 2688,
            "num_hidden_layers": 52,
            "num_mixer_layers": 23,
            "num_attention_layers": 6,
            "num_moe_layers": 23,
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "gated_attention": False,
            "mixer_in_width": 10304,
            "mixer_inner": 4096,
            "mixer_state": 128,
            "moe_intermediate_size": 1856,
            "moe_latent_size": None,
            "shared_intermediate_size": 3712,
            "num_experts": 128,
            "num_experts_per_tok": 6,
            "gated_experts": False,
            "hidden_act": "relu2",
            "max_position_embeddings": 262144,
            "tie_word_embeddings": False,
        }
    },
    build=build,
)
