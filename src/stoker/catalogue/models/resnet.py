"""ResNet (v1.5: the stride sits in the 3x3 convolution), basic and bottleneck. Counted per image.

Source of shapes: modeling_resnet.py of transformers. ReLU keeps its output, which is the next convolution's input.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.convolution import conv_norm, down, image_head, image_shape
from stoker.catalogue.models.parts.part import group, keeps, kernels
from stoker.core.i18n import _
from stoker.core.ledger import ModuleGroup

_REDUCTION = 4  # bottleneck width against its output


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of a ResNet config."""
    edge = config.edge("image_size")
    widths = config.sizes("hidden_sizes")
    depths = config.sizes("depths", length=len(widths))
    channels, stem = config.size("num_channels"), config.size("embedding_size")
    half = down(edge, 7, 2, 3)
    size = down(half, 3, 2, 1)
    stem_part = (
        keeps("pixel_values", "other", channels * edge * edge)
        + conv_norm("embedder", channels, stem, 7, half * half, activated=config.text("hidden_act"))
        + keeps("pooler.indices", "other", stem * size * size, bytes_per_element=8.0)
        + kernels(1)
    )
    groups: list[ModuleGroup] = [group("embedder", "conv", stem_part)]
    inputs = stem
    for index, (outputs, depth) in enumerate(zip(widths, depths, strict=True)):
        stride = 2 if index > 0 or config.flag("downsample_in_first_stage") else 1
        new_size = down(size, 3, stride, 1)
        name = f"encoder.stages.{index}"
        groups.append(_layer_group(f"{name}.first", config, inputs, outputs, size, new_size, 1))
        if depth > 1:
            groups.append(_layer_group(f"{name}.others", config, outputs, outputs, new_size, new_size, depth - 1))
        inputs, size = outputs, new_size
    last = keeps("last_relu", "activation_input", inputs * size * size)
    groups.append(image_head("classifier.1", inputs, target.num_labels, last))
    return image_shape(tuple(groups), target, width=inputs, layers=sum(depths), edge=edge)


def _layer_group(
    name: str, config: ConfigReader, inputs: int, outputs: int, size: int, new_size: int, repeats: int
) -> ModuleGroup:
    area, new_area = size * size, new_size * new_size
    act = config.text("hidden_act")
    kind = config.text("layer_type")
    if kind == "bottleneck":
        if outputs % _REDUCTION:
            raise config.wrong("hidden_sizes", _("{width} cannot be divided by 4").format(width=outputs))
        inner = outputs // _REDUCTION
        first_area = new_area if config.flag("downsample_in_bottleneck") else area
        part = (
            conv_norm("layer.0", inputs, inner, 1, first_area, activated=act)
            + conv_norm("layer.1", inner, inner, 3, new_area, activated=act)
            + conv_norm("layer.2", inner, outputs, 1, new_area)
        )
    elif kind == "basic":
        part = conv_norm("layer.0", inputs, outputs, 3, new_area, activated=act)
        part += conv_norm("layer.1", outputs, outputs, 3, new_area)
    else:
        raise config.wrong("layer_type", _("basic or bottleneck is needed, this is {value}").format(value=repr(kind)))
    if inputs != outputs or size != new_size:
        part += conv_norm("shortcut", inputs, outputs, 1, new_area)
    part += keeps("input", "activation_input", inputs * area) + kernels(2)
    return group(name, "conv", part, repeats=repeats, input_elements=inputs * area)


FAMILY = Family(
    name="resnet",
    modality="image",
    tasks=("image_classification",),
    model_types={
        "resnet": {
            "num_channels": 3,
            "embedding_size": 64,
            "hidden_sizes": [256, 512, 1024, 2048],
            "depths": [3, 4, 6, 3],
            "layer_type": "bottleneck",
            "hidden_act": "relu",
            "downsample_in_first_stage": False,
            "downsample_in_bottleneck": False,
            "image_size": 224,
        }
    },
    build=build,
)
