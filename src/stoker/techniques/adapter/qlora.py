"""QLoRA (2305.14314): LoRA over a base whose block linears are stored in 4 bits.

nf4 keeps half a byte a parameter and one scale per block of 64: fp32 (0.5625 bytes), or with double quantisation one
byte and one fp32 per 256 of those (0.516). Biases, embeddings, norms, head and the experts of an MoE layer are not
quantised: bitsandbytes replaces linear modules only, and an expert stack is not one (case 6). They stay 16-bit, or
become fp32 (`tune.unquantised`) as peft's prepare_model_for_kbit_training leaves them: then the hidden states
between blocks are fp32 too. Each forward, backward and recomputation unpacks each weight into a 16-bit copy, one
linear at a time, so a step is slower than LoRA's.
"""

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Final

from stoker.core.errors import EnvironmentProblem
from stoker.core.i18n import _
from stoker.core.job import TuneSpec
from stoker.core.ledger import Ledger, Linear, ModuleGroup
from stoker.techniques.adapter.lora import LowRank

if TYPE_CHECKING:
    import torch

_BLOCK: Final = 64  # weights of one scale
_SCALE_BLOCK: Final = 256  # scales of one second-level scale
_CODE_BYTES: Final = 16 * 4  # nf4's sixteen values, with every tensor
_SCALE_CODE_BYTES: Final = 256 * 4 + 4  # the scales' own code book and their mean
_WIDTHS: Final = {"16bit": 2.0, "fp32": 4.0}


class QLoRA:
    """LoRA on nf4 weights; needs bitsandbytes."""

    __slots__ = ()

    name: ClassVar[str] = "qlora"

    def apply(self, ledger: Ledger, tune: TuneSpec) -> Ledger:
        """As LoRA, with nf4 block linears and everything else that is frozen in `tune.unquantised`."""
        adapted = LowRank(name=self.name).apply(ledger, tune)
        return replace(adapted, groups=tuple(_quantised(group, tune) for group in adapted.groups))

    def attach(self, model: "torch.nn.Module", tune: TuneSpec) -> "torch.nn.Module":
        """The quantised model in peft's wrapper. Raises EnvironmentProblem ST580 without bitsandbytes."""
        require_bitsandbytes()
        from stoker.techniques.adapter.quantised import quantise_blocks

        quantise_blocks(model, double_quant=tune.double_quant, wide=tune.unquantised == "fp32")
        return LowRank(name=self.name).attach(model, tune)


def nf4_bytes(elements: int, *, double_quant: bool) -> int:
    """Bytes of one weight of `elements`: packed values, scales and code books, as bitsandbytes keeps them."""
    blocks = -(-elements // _BLOCK)
    packed = -(-elements // 2) + _CODE_BYTES
    if not double_quant:
        return packed + 4 * blocks
    return packed + blocks + 4 * -(-blocks // _SCALE_BLOCK) + _SCALE_CODE_BYTES


def quantised_linears(group: ModuleGroup) -> tuple[Linear, ...]:
    """Linears of one copy of `group` that are stored in 4 bits: the dense ones of frozen blocks."""
    if group.kind != "block" or group.base_trainable:
        return ()
    return tuple(lin for lin in group.linears if lin.count == 1)


def _quantised(group: ModuleGroup, tune: TuneSpec) -> ModuleGroup:
    if group.base_trainable:  # a classification head learns in the run's own precision
        return group
    wide = _WIDTHS[tune.unquantised]
    sizes = [lin.in_features * lin.out_features for lin in quantised_linears(group)]
    packed = sum(nf4_bytes(size, double_quant=tune.double_quant) for size in sizes)
    total = packed + (group.num_params - sum(sizes)) * wide
    return replace(
        group,
        weight_bytes_per_param=total / group.num_params if group.num_params else wide,
        weights_quantised=True,
        unquantised_bytes_per_param=wide,
        quantised_bytes=float(packed),
        dequantised_bytes=2.0 * sum(sizes),
        dequantised_temp_bytes=2.0 * max(sizes, default=0),
        num_kernels=group.num_kernels + len(sizes) * (3 if tune.double_quant else 1),
    )


def require_bitsandbytes() -> None:
    """Raises EnvironmentProblem ST580 where 4-bit weights cannot be made."""
    if find_spec("bitsandbytes") is None:
        raise EnvironmentProblem(
            "ST580",
            _("tune.method: qlora needs bitsandbytes"),
            place="tune.method",
            fix=_("pip install bitsandbytes, or use tune.method: lora"),
        )
