"""LoRA (2106.09685) and DoRA (2402.09353): r x (in + out) fp32 parameters beside each targeted linear.

The base is frozen; a classification head learns in full. Adapted are the dense linears of the blocks: experts of an
MoE layer and its router are not (transformers keeps experts as one 3-D parameter, not as linears), and beside experts
neither are the linears that peft takes for experts (`targets.taken_for_expert`): there attention learns. What an
adapter saves is a fixed amount of state, 14 B x base - 16 B x adapter in bf16 (case 3); the chain of input gradients
stays.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stoker.core.errors import ModelError
from stoker.core.i18n import _
from stoker.core.job import TuneSpec
from stoker.core.ledger import Ledger, Linear, ModelArch, ModuleGroup, SavedTensor
from stoker.techniques.adapter.freeze import freeze_groups, mark_backward, without_frozen_inputs
from stoker.techniques.adapter.targets import may_be_target, taken_for_expert

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """peft's LoRA; `dora`: with a learned magnitude per output feature."""

    name: str
    dora: bool = False

    def apply(self, ledger: Ledger, tune: TuneSpec) -> Ledger:
        """Freezes the base and adds adapters. Raises ModelError ST281 when no linear matches `tune.targets`."""
        head_learns = ledger.arch.num_outputs != ledger.arch.vocab_size
        stacked = has_stacked_experts(ledger.arch)
        frozen = freeze_groups(ledger, tune.freeze).groups
        groups = tuple(self._adapted(group, tune, head_learns=head_learns, stacked=stacked) for group in frozen)
        adapted = replace(ledger, groups=groups, passes=(*ledger.passes, self.name))
        if not adapted.num_adapter_params:
            raise nothing_to_adapt(ledger.arch.name, tune)
        return mark_backward(adapted)

    def attach(self, model: "torch.nn.Module", tune: TuneSpec) -> "torch.nn.Module":
        """The model in peft's wrapper. Raises ModelError ST281 when no linear matches `tune.targets`."""
        from stoker.techniques.adapter.modules import attach_low_rank

        return attach_low_rank(model, tune, dora=self.dora)

    def _adapted(self, group: ModuleGroup, tune: TuneSpec, *, head_learns: bool, stacked: bool) -> ModuleGroup:
        frozen_before = group.trainable_params == 0
        if group.kind == "head" and head_learns and not frozen_before:
            return group
        mine = () if frozen_before else group.linears
        targets = [x for x in mine if self._adapts(group, x, tune) and not (stacked and taken_for_expert(x.name))]
        if not targets:
            return without_frozen_inputs(replace(group, trainable_params=0))
        names = {lin.name for lin in targets}
        shared = names if tune.dropout == 0 else set()
        kept = [t for t in group.saved if t.role != "linear_input" or shared.intersection(t.linears)]
        extra = sum(lin.out_features for lin in targets) if self.dora else 0
        return replace(
            group,
            trainable_params=0,
            adapter_params=tune.rank * sum(lin.in_features + lin.out_features for lin in targets) + extra,
            adapter_temp_bytes=self._norm_bytes(targets),
            adapted=tuple(lin.name for lin in targets),
            adapter_shapes=tuple(shape for lin in targets for shape in self._shapes(lin, tune.rank)),
            adapter_flops_per_token=self._flops(targets, tune),
            saved=(*kept, *(tensor for lin in targets for tensor in self._saved(lin, tune))),
            num_kernels=group.num_kernels + len(targets) * (9 if self.dora else 4),
        )

    def _shapes(self, linear: Linear, rank: int) -> Iterator[tuple[int, ...]]:
        yield rank, linear.in_features
        yield linear.out_features, rank
        if self.dora:
            yield (linear.out_features,)

    @staticmethod
    def _adapts(group: ModuleGroup, linear: Linear, tune: TuneSpec) -> bool:
        return group.kind == "block" and linear.count == 1 and may_be_target(linear.name, tune.targets)

    def _flops(self, targets: list[Linear], tune: TuneSpec) -> float:
        """Forward FLOPs per token: two thin products a linear; DoRA with dropout runs the frozen linear twice."""
        thin = sum(2.0 * tune.rank * (lin.in_features + lin.out_features) for lin in targets)
        again = sum(lin.flops_per_token for lin in targets) if self.dora and tune.dropout > 0 else 0.0
        return thin + again

    def _saved(self, linear: Linear, tune: TuneSpec) -> Iterator[SavedTensor]:
        name, names = f"adapter.{linear.name}", (linear.name,)
        if tune.dropout > 0:  # the dropped-out copy, in the adapter's format, and its mask
            yield SavedTensor(name=f"{name}.dropped", role="other", elements=linear.in_features, bytes_per_element=4.0)
            yield SavedTensor(name=f"{name}.mask", role="mask", elements=linear.in_features, bytes_per_element=1.0)
        else:
            yield SavedTensor(name=f"{name}.input", role="adapter_input", elements=linear.in_features, linears=names)
        yield SavedTensor(name=f"{name}.rank", role="other", elements=tune.rank, bytes_per_element=4.0)
        if self.dora:
            yield from self._magnitude_keeps(linear, name, tune)

    @staticmethod
    def _magnitude_keeps(linear: Linear, name: str, tune: TuneSpec) -> Iterator[SavedTensor]:
        """Both outputs that the magnitude scales; with dropout the frozen product runs again over an fp32 copy."""
        again = tune.dropout > 0
        width = float(linear.out_features)
        yield SavedTensor(
            name=f"{name}.base_output", role="other", elements=width, bytes_per_element=4.0 if again else None
        )
        yield SavedTensor(name=f"{name}.output", role="other", elements=width, bytes_per_element=4.0)
        if again:
            yield SavedTensor(
                name=f"{name}.weight_copy",
                role="other",
                elements=width * linear.in_features,
                bytes_per_element=4.0,
                only_below_fp32=True,
                once=True,
            )

    def _norm_bytes(self, targets: list[Linear]) -> float:
        """DoRA's weight norm, fp32: an identity, the factors' product, the weight, the scaled product, their sum."""
        if not self.dora:
            return 0.0
        return 4.0 * max(lin.in_features**2 + 4.0 * lin.in_features * lin.out_features for lin in targets)


def has_stacked_experts(arch: ModelArch) -> bool:
    """Whether blocks hold experts, which transformers keeps as one parameter for all of them."""
    return any(linear.count > 1 for group in arch.groups for linear in group.linears)


def nothing_to_adapt(model: str, tune: TuneSpec) -> ModelError:
    """The error for a model in which `tune.targets` matches no linear."""
    targets = tune.targets if isinstance(tune.targets, str) else ", ".join(tune.targets)
    return ModelError(
        "ST281",
        _("{model} has no linear that matches tune.targets: {targets}").format(model=model, targets=targets),
        place="tune.targets",
        fix=_("use all-linear or names of linears inside the blocks; a convolutional network needs tune.method: full"),
    )
