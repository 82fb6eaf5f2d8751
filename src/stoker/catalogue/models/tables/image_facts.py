"""Image networks known by facts alone: parameters, multiply-adds, kept activations and launches of one image.

The facts are in data/image_facts.csv: each network was built from timm on the meta device and run forward once in
training mode, counting what autograd keeps (tensors in the compute dtype, attention scores apart). At another image
size, multiply-adds and activations go with the area.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.convolution import image_shape
from stoker.catalogue.models.parts.part import Part, group, keeps, kernels, weights

_WIDEST_FRAC = 16  # the widest tensor is about so much of all: ResNet-50 1/27, EfficientNet-B0 1/12, counted with timm


def build(config: ConfigReader, target: Target) -> Shape:
    """One group of all layers, the last linear among them, and the FLOPs of grouped convolutions apart: they reach a
    far lower rate than others (kernels for a few channels a group leave matrix units idle)."""
    edge, own_edge = config.edge("image_size"), config.edge("facts_image_size")
    area = (edge / own_edge) ** 2
    grouped = config.number("grouped_gmacs", least=0.0, most=1e5)
    body = weights(config.size("num_params", most=10**11))
    body += Part(flops=2.0 * area * 1e9 * max(0.0, config.number("gmacs", least=1e-6, most=1e5) - grouped))
    kept = area * 1e6 * config.number("kept_melements", least=1e-6, most=1e5)
    for piece in range(_WIDEST_FRAC):
        body += keeps(f"kept.{piece}", "activation_input", kept / _WIDEST_FRAC)
    scores = config.number("score_melements", least=0.0, most=1e5)
    if scores:  # eager attention keeps its softmax in fp32
        body += keeps("softmax", "scores", area**2 * 1e6 * scores, bytes_per_element=4.0)
    body += kernels(config.size("kernels"))
    groups = [group("mixed" if scores else "body", "conv", body, input_elements=3.0 * edge * edge)]
    if grouped:
        groups.append(group("grouped", "conv", Part(flops=2.0 * area * 1e9 * grouped)))
    return image_shape(tuple(groups), target, width=config.size("width"), layers=1, edge=edge)


FAMILY = Family(
    name="image_facts",
    modality="image",
    tasks=("image_classification",),
    model_types={
        "image_facts": {
            "num_params": 25557032,
            "gmacs": 4.0892,
            "grouped_gmacs": 0.0,
            "kept_melements": 21.504,
            "score_melements": 0.0,
            "kernels": 174,
            "image_size": 224,
            "facts_image_size": 224,
            "width": 2048,
        }
    },
    build=build,
)
