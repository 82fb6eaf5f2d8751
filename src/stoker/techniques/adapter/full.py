"""Full tuning: every parameter learns, except what `tune.freeze` names."""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from stoker.core.job import TuneSpec
from stoker.core.ledger import Ledger
from stoker.techniques.adapter.freeze import freeze_groups, mark_backward, nothing_learns, without_frozen_inputs

if TYPE_CHECKING:
    import torch


class Full:
    """No adapter."""

    __slots__ = ()

    name: ClassVar[str] = "full"

    def apply(self, ledger: Ledger, tune: TuneSpec) -> Ledger:
        """Frozen groups lose their gradient, state and linear inputs; below the first that learns, everything.

        Raises ModelError ST282 for a prefix that names nothing, ST283 where nothing is left to learn.
        """
        frozen = mark_backward(freeze_groups(ledger, tune.freeze))
        groups = tuple(without_frozen_inputs(group) for group in frozen.groups)
        learning = replace(frozen, groups=groups, passes=(*ledger.passes, self.name))
        if tune.freeze and not learning.num_trainable:
            raise nothing_learns(ledger.arch.name)
        return learning

    def attach(self, model: "torch.nn.Module", tune: TuneSpec) -> "torch.nn.Module":
        """`model` with the named prefixes frozen. Raises ModelError ST282 or ST283, as `apply`."""
        from stoker.techniques.adapter.modules import freeze_prefixes

        freeze_prefixes(model, tune.freeze)
        if not any(param.requires_grad for param in model.parameters()):
            raise nothing_learns(type(model).__name__)
        return model
