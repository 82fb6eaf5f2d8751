"""Frozen parts: `tune.freeze` names module prefixes, and this says which module groups those are.

Groups are named as the modules below the base model (`embeddings`, `encoder.layer`, `classifier`), so a prefix names
a group with or without the base model's own name before it (`electra.embeddings`, `model.layers.3`); the base model's
name alone means all but the head. A prefix that ends inside a layer freezes those weights and is not priced.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from stoker.core.errors import ModelError
from stoker.core.i18n import _
from stoker.core.ledger import Ledger, ModuleGroup

_BASES: Final = ("model", "transformer", "base_model")
_VARIANTS: Final = (".sliding", ".full")  # one stack of layers, told apart by attention window


def freeze_groups(ledger: Ledger, prefixes: Sequence[str]) -> Ledger:
    """The ledger with the groups that `prefixes` name frozen, block groups split at the frozen layers.

    Raises ModelError ST282 for a lone word that is neither a group's name nor the base model's.
    """
    if not prefixes:
        return ledger
    result: list[ModuleGroup] = []
    first_layer: dict[str, int] = {}
    tops = {part for group in ledger.groups for part in (group.name, group.name.split(".", 1)[0])}
    for prefix in prefixes:
        if _is_base(prefix, tops) and not _may_name_base(prefix, ledger.arch.family):
            raise nothing_to_freeze(prefix, ledger.arch.name, sorted(tops))
    for group in ledger.groups:
        root = _root(group)
        start = first_layer.get(root, 0)
        first_layer[root] = start + group.repeats
        frozen = [
            any(_covers(prefix, group, layer, tops) for prefix in prefixes)
            for layer in range(start, start + group.repeats)
        ]
        result.extend(_runs(group, frozen))
    return replace(ledger, groups=tuple(result))


def nothing_to_freeze(prefix: str, model: str, names: Sequence[str]) -> ModelError:
    """The error for a prefix that matches nothing; `names`: some that would."""
    return ModelError(
        "ST282",
        _("tune.freeze: {prefix} names no parameter of {model}").format(prefix=prefix, model=model),
        place="tune.freeze",
        fix=_("for example: {names}").format(names=", ".join(names)),
    )


def nothing_learns(model: str) -> ModelError:
    """The error for a job that freezes the whole model: it would cost a run and change nothing."""
    return ModelError(
        "ST283",
        _("tune.freeze: nothing of {model} is left to learn").format(model=model),
        place="tune.freeze",
        fix=_("leave out the part that should learn"),
    )


def mark_backward(ledger: Ledger) -> Ledger:
    """The ledger with every frozen group below the lowest one that learns taken out of backward: it keeps nothing."""
    learning = False
    result: list[ModuleGroup] = []
    for group in ledger.groups:
        learning = learning or group.trainable > 0
        result.append(group if learning else replace(group, in_backward=False, saved=(), input_elements=0.0))
    return replace(ledger, groups=tuple(result))


def without_frozen_inputs(group: ModuleGroup) -> ModuleGroup:
    """A frozen group without the inputs of its linears: those serve the weight gradient only."""
    if group.base_trainable or not group.num_params:
        return group
    return replace(group, saved=tuple(t for t in group.saved if t.role != "linear_input"))


def _root(group: ModuleGroup) -> str:
    return next((group.name.removesuffix(v) for v in _VARIANTS if group.name.endswith(v)), group.name)


def _is_base(prefix: str, tops: set[str]) -> bool:
    return "." not in prefix and not prefix.startswith(tuple(tops))


def _may_name_base(prefix: str, family: str) -> bool:
    """The base is an attribute such as `model`, `transformer`, or part of the family's name: `roberta`, `gpt_neox`."""
    return prefix in _BASES or prefix in family.replace("-", "_")


def _covers(prefix: str, group: ModuleGroup, layer: int, tops: set[str]) -> bool:
    """Whether `prefix` names the whole of `group`'s layer number `layer`. A lone word like no group's: the base."""
    if _is_base(prefix, tops):
        return group.kind != "head" or group.name == "pooler"
    module = f"{_root(group)}.{layer}" if group.kind == "block" else _root(group)
    below_base = prefix.split(".", 1)[-1]
    return any(module == name or module.startswith(name + ".") for name in (prefix, below_base))


def _runs(group: ModuleGroup, frozen: list[bool]) -> list[ModuleGroup]:
    """`group` cut where frozen and learning layers meet."""
    if len(set(frozen)) == 1:
        return [replace(group, trainable_params=0) if frozen[0] else group]
    pieces: list[ModuleGroup] = []
    start = 0
    for end in range(1, len(frozen) + 1):
        if end < len(frozen) and frozen[end] == frozen[start]:
            continue
        piece = replace(group, name=f"{group.name}[{start}:{end}]", repeats=end - start)
        pieces.append(replace(piece, trainable_params=0) if frozen[start] else piece)
        start = end
    return pieces
