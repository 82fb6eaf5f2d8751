"""Normalisation layers: parameters and what they keep, per token."""

from typing import Literal

from stoker.catalogue.models.parts.part import FP32_BYTES, Part, keeps, kernels, weights
from stoker.core.ledger import SavedTensor

RmsStyle = Literal["llama", "gemma"]


def layer_norm(name: str, width: int, *, bias: bool = True, own_input: bool = True) -> Part:
    """nn.LayerNorm: one fused kernel keeps its input, the mean and the reciprocal deviation.

    `own_input` False: another norm of the block reads the same tensor and counts it.
    """
    return (
        weights(width * (2 if bias else 1))
        + (keeps(f"{name}.input", "norm_input", width) if own_input else Part())
        + keeps(f"{name}.statistics", "norm_input", 2, bytes_per_element=FP32_BYTES)
        + kernels(1)
    )


def rms_norm(name: str, width: int, *, copies: int = 1, style: RmsStyle = "llama") -> Part:
    """Eager RMSNorm of transformers, which computes in fp32 step by step.

    `copies`: how many vectors of `width` a token has (heads, for query and key norms). Kept: the fp32 input, the
    reciprocal root, and the normalised value for the weight's gradient: in the compute dtype after Llama's way,
    in fp32 after Gemma's (weight applied before the cast).
    """
    elements = float(width * copies)
    normalised = SavedTensor(
        name=f"{name}.normalised",
        role="linear_input",
        elements=elements,
        bytes_per_element=FP32_BYTES if style == "gemma" else None,
        linears=(name,),
    )
    return (
        weights(width)
        + keeps(f"{name}.input", "norm_input", elements, bytes_per_element=FP32_BYTES)
        + keeps(f"{name}.rms", "norm_input", copies, bytes_per_element=FP32_BYTES)
        + Part(saved=(normalised,), kernels=8)
    )


def batch_norm(name: str, channels: int, elements: float) -> Part:
    """BatchNorm2d over `elements` of one image; running statistics are buffers, not parameters."""
    return weights(2 * channels) + keeps(f"{name}.input", "other", elements) + kernels(1)
