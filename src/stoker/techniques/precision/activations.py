"""What a number format does to the tensors kept for backward: the same network saves other tensors under it.

Under autocast the residual stream and the norms stay fp32, and each linear keeps its own narrow copy of an fp32
input. With frozen linears beside fp32 adapters only the adapter's input is kept: a 4-byte copy each without
autocast (peft casts to the adapter's format), a narrow copy each with it, the shared tensor in fp32.
The contract tests compare with what autograd keeps for tiny models.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from stoker.core.ledger import ModuleGroup, SavedTensor

_NARROWED: Final = (".dropped", ".rank", ".base_output", ".output", ".weight_copy")


def saved_in_fp32(group: ModuleGroup) -> ModuleGroup:
    """`group` as computed in fp32: an adapter reads the very tensor that its linear reads."""
    return replace(group, saved=tuple(t for t in group.saved if t.role != "adapter_input"))


def saved_in_16_bit(group: ModuleGroup) -> ModuleGroup:
    """`group` as computed with 16-bit weights and activations; fp32 adapters keep fp32 copies of their inputs."""
    return replace(group, saved=tuple(_with_adapters(group, adapter_bytes=group.adapter_bytes_per_param)))


def saved_under_autocast(group: ModuleGroup, compute_bytes: float) -> ModuleGroup:
    """`group` under autocast: fp32 norms and block inputs, one narrow input copy per linear.

    4-bit linears answer in the format they were asked in: in fp32 where the hidden states are (`unquantised: fp32`),
    so what a gate multiplies is fp32 too; in 16 bits, norms apart, where nothing is.
    """
    saved = tuple(_autocast_form(t) for t in _with_adapters(group, adapter_bytes=None))
    if not group.weights_quantised:
        return replace(group, saved=saved, input_elements=group.input_elements * 4.0 / compute_bytes)
    if not computes_wide(group):
        return replace(group, saved=saved)
    wide = tuple(_in_fp32(t) if t.role == "activation_input" else t for t in saved)
    return replace(group, saved=wide, input_elements=group.input_elements * 4.0 / compute_bytes)


def computes_wide(group: ModuleGroup) -> bool:
    """Whether what stays unquantised is fp32, so that the hidden states between blocks are."""
    return group.weights_quantised and group.unquantised_bytes_per_param == 4.0


def _in_fp32(tensor: SavedTensor) -> SavedTensor:
    return tensor if tensor.bytes_per_element is not None else replace(tensor, bytes_per_element=4.0)


def _with_adapters(group: ModuleGroup, adapter_bytes: float | None) -> Iterator[SavedTensor]:
    only_adapters = group.adapter_params > 0 and group.base_trainable == 0
    for tensor in group.saved:
        if tensor.role == "linear_input" and only_adapters:
            continue
        yield replace(tensor, bytes_per_element=adapter_bytes) if tensor.role == "adapter_input" else tensor


def _autocast_form(tensor: SavedTensor) -> SavedTensor:
    if tensor.role == "other" and tensor.name.startswith("adapter.") and tensor.name.endswith(_NARROWED):
        return replace(tensor, bytes_per_element=None)  # outputs of products and copies of weights
    if tensor.role == "norm_input" and tensor.bytes_per_element is None:
        return replace(tensor, bytes_per_element=4.0)
    if tensor.role == "scores" and tensor.name == "softmax":  # torch.autocast runs softmax in fp32
        return replace(tensor, bytes_per_element=4.0)
    if tensor.role == "linear_input" and tensor.name.endswith(".normalised"):  # an RMSNorm's, fp32 like its weight
        return replace(tensor, bytes_per_element=4.0)
    if tensor.role == "linear_input":
        return replace(tensor, elements=tensor.elements * max(1, len(tensor.linears)))
    return tensor
