"""Texts that stand twice: within a split, across splits, with contradicting labels. Case and spacing do not count."""

from collections.abc import Mapping, Sequence
from typing import Any

_PAIRS = (("train", "eval"), ("train", "test"), ("eval", "test"))


def count_duplicates(keys: Sequence[int]) -> int:
    """Samples whose text an earlier sample has too."""
    return len(keys) - len(set(keys))


def count_conflicts(keys: Sequence[int], labels: Sequence[Any]) -> int:
    """Texts that occur with more than one label."""
    first: dict[int, Any] = {}
    torn: set[int] = set()
    for key, label in zip(keys, labels, strict=True):
        if first.setdefault(key, label) != label:
            torn.add(key)
    return len(torn)


def count_leaks(keys: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """For each pair of splits (`train-eval`, ...): samples of the second whose text the first has."""
    sets = {name: set(values) for name, values in keys.items()}
    return {f"{a}-{b}": sum(key in sets[a] for key in keys[b]) for a, b in _PAIRS if a in keys and b in keys}
