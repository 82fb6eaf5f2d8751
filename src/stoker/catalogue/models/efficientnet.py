"""EfficientNet B0 to B7: inverted bottlenecks with squeeze and excitation. Counted per image.

Source of shapes: modeling_efficientnet.py of transformers, with its rounding of widths and depths. SiLU keeps its
input (the batch norm's output) and its output is the next layer's input.
"""

import math

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.convolution import conv_norm, convolution, image_head, image_shape
from stoker.catalogue.models.parts.part import Part, dropout, group, keeps, kernels
from stoker.core.i18n import _
from stoker.core.ledger import ModuleGroup


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of an EfficientNet config."""
    edge, channels = config.edge("image_size"), config.size("num_channels")
    stem = _rounded(config, 32)
    size = (edge + 1 - 3) // 2 + 1
    padded = channels * (edge + 1) ** 2
    stem_part = keeps("padded_pixels", "other", padded) + conv_norm(
        "embeddings", channels, stem, 3, size * size, activated="silu", output=False
    )
    groups: list[ModuleGroup] = [group("embeddings", "conv", stem_part)]
    blocks, size, width = _blocks(config, size)
    groups.extend(blocks)
    top = _rounded(config, 1280)
    top_part = keeps("input", "other", width * size * size) + conv_norm(
        "top", width, top, 1, size * size, activated="silu"
    )
    groups.append(group("encoder.top", "conv", top_part, input_elements=width * size * size))
    hidden = config.size("hidden_dim")
    groups.append(image_head("classifier", hidden, target.num_labels))
    return image_shape(tuple(groups), target, width=hidden, layers=len(blocks), edge=edge)


def _blocks(config: ConfigReader, size: int) -> tuple[list[ModuleGroup], int, int]:
    """(one group a block, last feature map's edge, last width)."""
    count = len(config.sizes("in_channels"))
    rows = zip(
        config.sizes("in_channels"),
        config.sizes("out_channels", length=count),
        config.sizes("strides", length=count),
        config.sizes("kernel_sizes", length=count),
        config.sizes("expand_ratios", length=count),
        config.sizes("num_block_repeats", length=count, most=1000),
        strict=True,
    )
    depth = config.number("depth_coefficient", least=0.01, most=100.0)
    padding = config.sizes("depthwise_padding", least=0, may_be_empty=True)
    plans = [(i, o, s, k, e, math.ceil(depth * r)) for i, o, s, k, e, r in rows]
    total = sum(plan[-1] for plan in plans)
    rate = config.frac("drop_connect_rate")
    groups: list[ModuleGroup] = []
    width = 0
    for inputs, outputs, stride, kernel, expand, repeats in plans:
        width = _rounded(config, outputs)
        for repeat in range(repeats):
            number = len(groups)
            step = stride if repeat == 0 else 1
            source = _rounded(config, inputs) if repeat == 0 else width
            pad = 2 * (kernel // 2) - (1 if number not in padding else 0)
            new_size = (size + pad - kernel) // 2 + 1 if step == 2 else size
            if new_size < 1:
                raise config.wrong("image_size", _("the image is too small for this network"))
            part = _block(source, width, kernel, expand, size, new_size, pad if step == 2 else None, config)
            if repeat > 0:
                part += dropout("dropout", width * new_size * new_size, rate * number / total) + kernels(1)
            groups.append(group(f"encoder.blocks.{number}", "conv", part, input_elements=source * size * size))
            size = new_size
    return groups, size, width


def _block(
    inputs: int, outputs: int, kernel: int, expand: int, size: int, new_size: int, pad: int | None, config: ConfigReader
) -> Part:
    """One inverted bottleneck; `pad`: zero padding before a strided depthwise convolution, None without stride."""
    inner, area, new_area = inputs * expand, size * size, new_size * new_size
    squeezed = max(1, int(inputs * config.number("squeeze_expansion_ratio", least=0.001, most=8.0)))
    part = Part()
    # What the depthwise convolution reads: a padded copy where it has a stride, else the map before it
    read = inner * (size + pad) ** 2 if pad is not None else inner * area
    if expand != 1:
        part += keeps("input", "other", inputs * area)
        part += conv_norm("expand", inputs, inner, 1, area, activated="silu", output=False)
    part += keeps("depthwise.input", "other", read)
    part += conv_norm("depthwise", inner, inner, kernel, new_area, groups=inner, activated="silu")
    part += convolution(inner, squeezed, 1, 1, bias=True) + convolution(squeezed, inner, 1, 1, bias=True)
    part += keeps("squeeze", "other", 3 * squeezed + 2 * inner) + kernels(5)
    part += keeps("excited", "other", inner * new_area)
    return part + conv_norm("project", inner, outputs, 1, new_area)


def _rounded(config: ConfigReader, channels: int) -> int:
    """Width after the width coefficient, to a multiple of depth_divisor, never more than 10 % below."""
    divisor = config.size("depth_divisor")
    scaled = channels * config.number("width_coefficient", least=0.01, most=100.0)
    rounded = max(divisor, int(scaled + divisor / 2) // divisor * divisor)
    return int(rounded + divisor if rounded < 0.9 * scaled else rounded)


FAMILY = Family(
    name="efficientnet",
    modality="image",
    tasks=("image_classification",),
    model_types={
        "efficientnet": {
            "num_channels": 3,
            "image_size": 600,
            "width_coefficient": 2.0,
            "depth_coefficient": 3.1,
            "depth_divisor": 8,
            "kernel_sizes": [3, 3, 5, 3, 5, 5, 3],
            "in_channels": [32, 16, 24, 40, 80, 112, 192],
            "out_channels": [16, 24, 40, 80, 112, 192, 320],
            "depthwise_padding": [],
            "strides": [1, 2, 2, 2, 1, 2, 1],
            "num_block_repeats": [1, 2, 2, 3, 3, 4, 1],
            "expand_ratios": [1, 6, 6, 6, 6, 6, 6],
            "squeeze_expansion_ratio": 0.25,
            "hidden_dim": 2560,
            "drop_connect_rate": 0.2,
        }
    },
    build=build,
)
