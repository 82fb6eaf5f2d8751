"""QLoRA (2305.14314): LoRA over a base whose block linears are stored in 4 bits.

nf4 keeps 0.5 byte and one fp32 absmax per block of 64: 0.5625 bytes a parameter. Embeddings, norms, head and the
experts of an MoE layer stay 16-bit: bitsandbytes replaces linear modules only, and an expert stack is not one (case 6).
Each forward and each recomputation unpacks the weights, so a step is slower than LoRA's.
"""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from stoker.core.dtypes import BYTES_PER_ELEMENT
from stoker.core.errors import EnvironmentProblem
from stoker.core.i18n import _
from stoker.core.job import TuneSpec
from stoker.core.ledger import Ledger, ModuleGroup
from stoker.techniques.adapter.lora import LowRank

if TYPE_CHECKING:
    import torch

_UNQUANTISED_BYTES = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QLoRA:
    """LoRA on nf4 weights; needs bitsandbytes and a CUDA GPU."""

    name: ClassVar[str] = "qlora"

    def apply(self, ledger: Ledger, tune: TuneSpec) -> Ledger:
        """As LoRA, with nf4 block linears and everything else that is frozen in 16 bits."""
        adapted = LowRank(name=self.name).apply(ledger, tune)
        return replace(adapted, groups=tuple(_quantised(group) for group in adapted.groups))

    def attach(self, model: "torch.nn.Module", tune: TuneSpec) -> "torch.nn.Module":
        """The quantised model in peft's wrapper. Raises EnvironmentProblem ST580 without bitsandbytes or CUDA."""
        require_bitsandbytes()
        return LowRank(name=self.name).attach(model, tune)


def _quantised(group: ModuleGroup) -> ModuleGroup:
    if group.base_trainable:  # a classification head learns in the run's own precision
        return group
    packed = sum(lin.in_features * lin.out_features for lin in group.linears if lin.count == 1)
    packed = min(packed, group.num_params) if group.kind == "block" else 0
    total = packed * BYTES_PER_ELEMENT["nf4"] + (group.num_params - packed) * _UNQUANTISED_BYTES
    width = total / group.num_params if group.num_params else _UNQUANTISED_BYTES
    return replace(group, weight_bytes_per_param=width, weights_quantised=True)


def require_bitsandbytes() -> None:
    """Raises EnvironmentProblem ST580 where 4-bit weights cannot be made."""
    import torch

    if find_spec("bitsandbytes") is None or not torch.cuda.is_available():
        raise EnvironmentProblem(
            "ST580",
            _("tune.method: qlora needs bitsandbytes and a CUDA GPU"),
            place="bitsandbytes",
            fix=_("pip install bitsandbytes on a machine with a GPU, or use tune.method: lora"),
        )


def quantization_config(compute_dtype: str) -> Any:
    """transformers' BitsAndBytesConfig for loading the base in nf4. Raises EnvironmentProblem ST580."""
    require_bitsandbytes()
    from transformers import BitsAndBytesConfig

    from stoker.techniques.precision.conversion import torch_dtype

    return BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch_dtype(compute_dtype)
    )
