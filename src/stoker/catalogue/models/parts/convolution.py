"""Convolutions: parameters, FLOPs and feature maps of one image (a convolutional network has one token: the image)."""

from stoker.catalogue.models.family import Shape, Target
from stoker.catalogue.models.parts.norm import batch_norm
from stoker.catalogue.models.parts.part import Part, dense, group, keeps, kernels
from stoker.core.ledger import ModuleGroup


def convolution(inputs: int, outputs: int, kernel: int, area: int, *, groups: int = 1, bias: bool = False) -> Part:
    """A square convolution onto `area` output positions; 2 FLOPs per multiply-add."""
    matrix = inputs // groups * outputs * kernel * kernel
    return Part(num_params=matrix + (outputs if bias else 0), flops=2.0 * matrix * area, kernels=1)


def conv_norm(
    name: str,
    inputs: int,
    outputs: int,
    kernel: int,
    area: int,
    *,
    groups: int = 1,
    activated: str | None = None,
    output: bool = True,
) -> Part:
    """Convolution and batch norm, and `activated` after them: relu keeps its output, silu its input and output.

    `output` False: the activation's output is counted by its reader (a padded copy is kept in its place).
    """
    part = convolution(inputs, outputs, kernel, area, groups=groups) + batch_norm(name, outputs, outputs * area)
    if activated is None:
        return part
    count = (0 if activated == "relu" else 1) + (1 if output else 0)
    return part + keeps(f"{name}.{activated}", "activation_input", count * outputs * area) + kernels(1)


def down(size: int, kernel: int, stride: int, padding: int) -> int:
    """Edge of the feature map after a convolution or pooling."""
    return (size + 2 * padding - kernel) // stride + 1


def image_head(name: str, width: int, num_labels: int, extra: Part | None = None) -> ModuleGroup:
    """Pooling, whatever `extra` adds, and the labels; `name` is the linear's."""
    part = dense(name, width, num_labels, bias=True) + keeps("pooled", "other", width) + kernels(1)
    return group("classifier", "head", part + (extra or Part()))


def image_shape(groups: tuple[ModuleGroup, ...], target: Target, *, width: int, layers: int, edge: int) -> Shape:
    """The frame of a convolutional classifier."""
    return Shape(
        groups=groups,
        hidden_size=width,
        num_hidden_layers=layers,
        num_outputs=target.num_labels,
        image_size=edge,
        tokens_per_sample=1,
    )
