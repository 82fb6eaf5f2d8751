"""FlashAttention-2 through the package flash-attn: needs an Ampere or newer GPU and 16-bit compute."""

from importlib.util import find_spec
from typing import ClassVar

from stoker.core.errors import EnvironmentProblem
from stoker.core.hardware import Device
from stoker.core.i18n import _
from stoker.core.ledger import Ledger
from stoker.techniques.attention.sdpa import without_scores


class Flash:
    """Saves what sdpa saves; a T4 or V100 (below compute capability 8.0) never gets it."""

    __slots__ = ()

    name: ClassVar[str] = "flash"
    hf_name: ClassVar[str] = "flash_attention_2"

    def apply(self, ledger: Ledger) -> Ledger:
        """Drops every tensor that grows with tokens times keys."""
        return ledger.map_groups(without_scores, by=self.name)

    def unsupported(self, device: Device) -> str | None:
        """Why not, by compute capability; None when the hardware can."""
        capability = device.compute_capability
        if device.kind != "cuda" or capability is None:
            return _("FlashAttention-2 needs a CUDA GPU")
        if capability < (8, 0):
            return _("FlashAttention-2 needs compute capability 8.0, {device} has {major}.{minor}").format(
                device=device.name, major=capability[0], minor=capability[1]
            )
        return None


def require_flash_attn() -> None:
    """Raises EnvironmentProblem ST581 where the package flash-attn is not installed."""
    if find_spec("flash_attn") is None:
        raise EnvironmentProblem(
            "ST581",
            _("run.attention: flash needs the package flash-attn, which is not installed"),
            place="flash_attn",
            fix=_("pip install flash-attn, or use run.attention: sdpa (same memory)"),
        )
