"""A part of a block: parameters, linears, saved activations, FLOPs and kernel launches; parts add up to a group.

Units: parameters; elements per token (per image for convolutional networks); forward FLOPs per token; launches of
one forward. What autograd saves is read off the model code of transformers and pinned by
tests/contract/test_models_against_transformers.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from stoker.core.ledger import Attention, GroupKind, Linear, ModuleGroup, SavedRole, SavedTensor

FP32_BYTES = 4.0
MASK_BYTES = 1.0  # dropout masks are bool on GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a module. `num_params` includes those of `linears`; `flops` are those that linears do not hold."""

    num_params: int = 0
    linears: tuple[Linear, ...] = ()
    saved: tuple[SavedTensor, ...] = ()
    flops: float = 0.0
    kernels: int = 0

    def __add__(self, other: "Part") -> "Part":
        return Part(
            num_params=self.num_params + other.num_params,
            linears=self.linears + other.linears,
            saved=self.saved + other.saved,
            flops=self.flops + other.flops,
            kernels=self.kernels + other.kernels,
        )


def together(parts: Iterable[Part]) -> Part:
    """The sum of `parts`."""
    return reduce(Part.__add__, parts, Part())


def group(
    name: str,
    kind: GroupKind,
    part: Part,
    *,
    repeats: int = 1,
    attention: Attention | None = None,
    input_elements: float = 0.0,
) -> ModuleGroup:
    """`part` as a ledger group; `name` is the module's path below the base model."""
    return ModuleGroup(
        name=name,
        kind=kind,
        num_params=part.num_params,
        repeats=repeats,
        linears=part.linears,
        attention=attention,
        saved=part.saved,
        input_elements=input_elements,
        extra_flops_per_token=part.flops,
        num_kernels=max(1, part.kernels),
    )


def weights(count: int) -> Part:
    """Parameters that cost nothing worth counting."""
    return Part(num_params=count)


def kernels(count: int) -> Part:
    """Launches of elementwise work: residual adds, rotary embedding, scaling."""
    return Part(kernels=count)


def keeps(
    name: str,
    role: SavedRole,
    elements: float,
    *,
    bytes_per_element: float | None = None,
    per_key: bool = False,
    only_below_fp32: bool = False,
    per_sample: bool = False,
) -> Part:
    """One tensor that autograd keeps; `bytes_per_element` None: the compute dtype."""
    return Part(
        saved=(
            SavedTensor(
                name=name,
                role=role,
                elements=elements,
                bytes_per_element=bytes_per_element,
                per_key=per_key,
                only_below_fp32=only_below_fp32,
                per_sample=per_sample,
            ),
        )
    )


def keeps_input(elements: float, *linears: str) -> Part:
    """The input of `linears`, kept for their weight gradients only."""
    tensor = SavedTensor(name=f"{linears[0]}.input", role="linear_input", elements=elements, linears=linears)
    return Part(saved=(tensor,))


def dense(
    name: str, in_features: int, out_features: int, *, bias: bool = False, count: int = 1, active_frac: float = 1.0
) -> Part:
    """A linear layer (or `count` experts), without its input: see `keeps_input`."""
    linear = Linear(
        name=name,
        in_features=in_features,
        out_features=out_features,
        bias=bias,
        count=count,
        active_frac=active_frac,
    )
    return Part(num_params=linear.num_params, linears=(linear,), kernels=1)


def dropout(name: str, elements: float, probability: float) -> Part:
    """Dropout's mask; nothing where the probability is 0."""
    if probability <= 0.0:
        return Part()
    return keeps(f"{name}.mask", "mask", elements, bytes_per_element=MASK_BYTES) + kernels(1)
