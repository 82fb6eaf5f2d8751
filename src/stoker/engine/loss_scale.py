"""Loss scaling of fp16: a factor that keeps small gradients above fp16's floor, grown slowly, halved on overflow.

The state is three numbers that live in a checkpoint (case 26). An overflow is met by the same step again at the
lower scale, so neither the learning rate nor the update counter moves, and no sample is lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoker.core.errors import RunError
from stoker.core.i18n import _

_SMALLEST = 2.0**-10


@dataclass(slots=True)
class LossScale:
    """`scale` multiplies the loss; `good_steps` counts updates since the last change of scale."""

    scale: float = 65536.0
    growth_interval: int = 2000
    good_steps: int = 0

    def succeeded(self) -> None:
        """An update was made: after `growth_interval` of them in a row the scale doubles."""
        self.good_steps += 1
        if self.good_steps >= self.growth_interval:
            self.scale *= 2.0
            self.good_steps = 0

    def overflowed(self, step: int) -> None:
        """The gradient was not finite: halve. Raises RunError ST422 when no scale helps."""
        self.scale *= 0.5
        self.good_steps = 0
        if self.scale < _SMALLEST:
            raise RunError(
                "ST422",
                _("the gradient of step {step} overflows fp16 at every loss scale").format(step=step + 1),
                place=f"step {step + 1}",
                fix=_("use run.precision: bf16_amp or fp32, or lower train.lr"),
            )

    def state(self) -> dict[str, Any]:
        """JSON for the checkpoint's meta."""
        return {"scale": self.scale, "growth_interval": self.growth_interval, "good_steps": self.good_steps}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "LossScale":
        """The scaler that `state` describes."""
        return cls(
            scale=float(state["scale"]),
            growth_interval=int(state["growth_interval"]),
            good_steps=int(state["good_steps"]),
        )
