"""ConvNeXt and ConvNeXt V2. Counted per image.

Source of shapes: modeling_convnext.py and modeling_convnextv2.py of transformers. V1 has a learned scale per
channel after each block, V2 global response normalisation inside it.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.convolution import convolution, image_head, image_shape
from stoker.catalogue.models.parts.mlp import activation
from stoker.catalogue.models.parts.part import FP32_BYTES, Part, group, keeps, keeps_input, kernels, weights
from stoker.core.i18n import _
from stoker.core.ledger import Linear, ModuleGroup

_EXPANSION = 4


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a ConvNeXt config."""
    edge, patch = config.edge("image_size"), config.edge("patch_size")
    widths = config.sizes("hidden_sizes")
    depths = config.sizes("depths", length=len(widths))
    channels = config.size("num_channels")
    size = edge // patch
    stem = (
        keeps("pixel_values", "other", channels * edge * edge)
        + convolution(channels, widths[0], patch, size * size, bias=True)
        + _map_norm("embeddings.layernorm", widths[0], size * size)
    )
    groups: list[ModuleGroup] = [group("embeddings", "conv", stem)]
    for index, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        name = f"encoder.stages.{index}"
        if index > 0:
            before, size = widths[index - 1], size // 2
            if size < 1:
                raise config.wrong("image_size", _("the image is too small for this network"))
            groups.append(_downsampling(f"{name}.downsampling_layer", before, width, size))
        area = size * size
        part = _block(config, width, area)
        groups.append(group(f"{name}.layers", "conv", part, repeats=depth, input_elements=width * area))
    final = weights(2 * widths[-1]) + kernels(2)
    groups.append(group("layernorm", "norm", final))
    groups.append(image_head("classifier", widths[-1], target.num_labels))
    return image_shape(tuple(groups), target, width=widths[-1], layers=sum(depths), edge=edge)


def _map_norm(name: str, width: int, area: int) -> Part:
    """LayerNorm over channels at each position."""
    return (
        weights(2 * width)
        + keeps(f"{name}.input", "norm_input", width * area)
        + keeps(f"{name}.statistics", "norm_input", 2 * area, bytes_per_element=FP32_BYTES)
        + kernels(1)
    )


def _downsampling(name: str, before: int, width: int, size: int) -> ModuleGroup:
    area, area_before = size * size, 4 * size * size
    part = (
        _map_norm(f"{name}.0", before, area_before)
        + keeps("downsampling.input", "other", before * area_before)
        + convolution(before, width, 2, area, bias=True)
    )
    return group(name, "conv", part, input_elements=before * area_before)


def _pointwise(name: str, inputs: int, outputs: int, area: int) -> Part:
    """A linear layer at each position: its FLOPs are per image, so they stand apart from the matrix."""
    linear = Linear(name=name, in_features=inputs, out_features=outputs, bias=True)
    extra = linear.flops_per_token * (area - 1)
    return Part(num_params=linear.num_params, linears=(linear,), flops=extra, kernels=1)


def _block(config: ConfigReader, width: int, area: int) -> Part:
    inner = _EXPANSION * width
    part = (
        keeps("input", "other", width * area)
        + convolution(width, width, 7, area, groups=width, bias=True)
        + _map_norm("layernorm", width, area)
        + keeps_input(width * area, "pwconv1")
        + _pointwise("pwconv1", width, inner, area)
        + activation("pwconv1", config.text("hidden_act"), inner * area)
        + _pointwise("pwconv2", inner, width, area)
        + keeps_input(inner * area, "pwconv2")
        + kernels(3)
    )
    if config.model_type == "convnextv2":
        response = keeps("grn.input", "other", inner * area) + keeps_input(inner * area, "grn")
        return part + weights(2 * inner) + response + kernels(7)
    if config.number("layer_scale_init_value", least=0.0, most=1e6) > 0:
        part += weights(width) + keeps_input(width * area, "layer_scale_parameter")
    return part


_COMMON = {
    "num_channels": 3,
    "patch_size": 4,
    "hidden_sizes": [96, 192, 384, 768],
    "depths": [3, 3, 9, 3],
    "hidden_act": "gelu",
    "image_size": 224,
}

FAMILY = Family(
    name="convnext",
    modality="image",
    tasks=("image_classification",),
    model_types={"convnext": {**_COMMON, "layer_scale_init_value": 1e-6}, "convnextv2": _COMMON},
    build=build,
)
