"""Feed-forward layers: plain, gated (SwiGLU and kin) and mixtures of experts, per token."""

from typing import Final

from stoker.catalogue.models.parts.part import FP32_BYTES, Part, dense, keeps, keeps_input, kernels, weights

# Tensors of the layer's width that an activation keeps (its input and its own intermediates), by the name in
# transformers.activations; relu keeps its output, which the next linear keeps anyway.
_KEPT: Final[dict[str, int]] = {
    "gelu": 1,
    "gelu_pytorch_tanh": 1,
    "gelu_python": 3,
    "gelu_new": 4,
    "gelu_fast": 6,
    "quick_gelu": 2,
    "silu": 1,
    "swish": 1,
    "relu": 0,
    "relu6": 1,
    "tanh": 0,
    "sigmoid": 0,
    "mish": 1,
    "relu2": 1,
}
_LAUNCHES: Final[dict[str, int]] = {"gelu_new": 8, "gelu_fast": 9, "gelu_python": 5, "quick_gelu": 3, "relu2": 2}


def activation(name: str, kind: str, width: float) -> Part:
    """What the activation `kind` keeps over `width` elements; an unknown one is taken as one fused kernel."""
    count = _KEPT.get(kind, 1)
    kept = keeps(f"{name}.{kind}", "activation_input", count * width) if count else Part()
    return kept + kernels(_LAUNCHES.get(kind, 1))


def plain_mlp(
    names: tuple[str, str], width: int, inner: int, kind: str, *, bias: bool = True, own_input: bool = True
) -> Part:
    """Linear, activation, linear. `own_input` False: the input is the attention's, which counts it."""
    up, down = names
    return (
        dense(up, width, inner, bias=bias)
        + (keeps_input(width, up) if own_input else Part())
        + activation(up, kind, inner)
        + dense(down, inner, width, bias=bias)
        + keeps_input(inner, down)
    )


def gated_mlp(width: int, inner: int, kind: str, *, bias: bool = False) -> Part:
    """down(act(gate(x)) * up(x)), unfused: gate, up, activation and product are all kept."""
    return (
        dense("gate_proj", width, inner, bias=bias)
        + dense("up_proj", width, inner, bias=bias)
        + keeps_input(width, "gate_proj", "up_proj")
        + _gate(inner, kind)
        + dense("down_proj", inner, width, bias=bias)
        + keeps_input(inner, "down_proj")
    )


def fused_gated_mlp(names: tuple[str, str], width: int, inner: int, kind: str, *, bias: bool = False) -> Part:
    """The same with gate and up as one projection."""
    up, down = names
    return (
        dense(up, width, 2 * inner, bias=bias)
        + keeps_input(width, up)
        + _gate(inner, kind)
        + dense(down, inner, width, bias=bias)
        + keeps_input(inner, down)
    )


def _gate(inner: float, kind: str) -> Part:
    return (
        activation("gate", kind, inner)
        + keeps("up", "activation_input", inner)
        + keeps("gate.activated", "activation_input", inner)
        + kernels(1)
    )


def experts_mlp(
    width: int,
    inner: int,
    *,
    num_experts: int,
    top_k: int,
    kind: str = "silu",
    bias: bool = False,
    gate_tensors: int = 3,
) -> Part:
    """Gated experts as 3-D weights behind a router, in the grouped form (tokens gathered by expert).

    Kept per chosen expert: the gathered input, gate and up (one storage), activation intermediates, product,
    output before weighting. `gate_tensors`: width-`inner` tensors of gate, up and their activation.
    """
    share = top_k / num_experts
    return (
        dense("experts.gate_up_proj", width, 2 * inner, bias=bias, count=num_experts, active_frac=share)
        + dense("experts.down_proj", inner, width, bias=bias, count=num_experts, active_frac=share)
        + keeps_input(top_k * width, "experts.gate_up_proj")
        + keeps("experts.gate", "activation_input", top_k * gate_tensors * inner)
        + keeps_input(top_k * inner, "experts.down_proj")
        + keeps("experts.output", "other", top_k * width)
        + kernels(14)
    )


def router(width: int, num_experts: int, top_k: int, *, bias: bool = False, softmax_all: bool = True) -> Part:
    """The router: a matrix that is no nn.Linear, softmax over all experts in fp32 (or over the chosen ones)."""
    routed = num_experts if softmax_all else top_k
    return (
        weights(width * num_experts + (num_experts if bias else 0))
        + Part(flops=2.0 * width * num_experts)
        + keeps_input(width, "router")
        + keeps("router.softmax", "other", routed, bytes_per_element=FP32_BYTES)
        + keeps("router.top_k", "other", 4 * top_k, bytes_per_element=8.0)
        + kernels(6)
    )


def sigmoid_router(width: int, num_experts: int, top_k: int) -> Part:
    """DeepSeek's router: scores of all experts by a sigmoid in fp32 from an fp32 input, a bias only to choose."""
    return (
        weights(width * num_experts)
        + Part(flops=2.0 * width * num_experts)
        + keeps_input(width, "router")
        + keeps("router.cast", "other", width, bytes_per_element=FP32_BYTES, only_below_fp32=True)
        + keeps("router.sigmoid", "other", num_experts, bytes_per_element=FP32_BYTES)
        + keeps("router.top_k", "other", 4 * top_k, bytes_per_element=8.0)
        + kernels(20)
    )


def shared_mlp(width: int, inner: int, kind: str, *, name: str = "shared_experts") -> Part:
    """The experts that every token passes through, as one gated layer on the block's input, which the router keeps."""
    return (
        dense(f"{name}.gate_proj", width, inner)
        + dense(f"{name}.up_proj", width, inner)
        + _gate(inner, kind)
        + dense(f"{name}.down_proj", inner, width)
        + keeps_input(inner, f"{name}.down_proj")
        + kernels(1)
    )
