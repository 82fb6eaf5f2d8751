"""The wire between the benchmark and a peer's own environment: cases in as JSON, answers out as JSON. No other import.

An adapter is one function, case -> bytes; it raises `NotOffered(reason)` for what the peer cannot express. What the
peer itself raises counts as not offered too, in the peer's own words.
"""

import contextlib
import importlib.metadata
import io
import json
import sys
from collections.abc import Callable
from typing import Any


class NotOffered(Exception):
    """The peer has no input for this row."""


def answer(predict: Callable[[dict[str, Any]], float], packages: tuple[str, ...]) -> None:
    """Reads `[case, ...]` from stdin. Last line of stdout: `{"versions", "answers": [{"bytes"} | {"not_offered"}]}`."""
    cases = json.load(sys.stdin)
    answers: list[dict[str, Any]] = []
    for case in cases:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            answers.append(_one(predict, case))
    versions = {name: importlib.metadata.version(name) for name in packages}
    print("\n" + json.dumps({"versions": versions, "answers": answers}))  # after what the peer itself has printed


def _one(predict: Callable[[dict[str, Any]], float], case: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"bytes": predict(case)}
    except NotOffered as reason:
        return {"not_offered": str(reason)}
    except Exception as error:
        return {"not_offered": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}", "refused": True}


def need_shape(case: dict[str, Any]) -> dict[str, Any]:
    """The sizes of the model, or NotOffered where nobody knows them."""
    if case["arch"] is None:
        raise NotOffered("the model's shape is not known here")
    return dict(case["arch"])


def need_batch(case: dict[str, Any]) -> tuple[int, int]:
    """(micro_batch, seq_len), or NotOffered where the row does not say."""
    if not case["micro_batch"] or not case["seq_len"]:
        raise NotOffered("the row states no batch or length")
    return case["micro_batch"], case["seq_len"]


def need_method(case: dict[str, Any], *methods: str) -> str:
    """The method, or NotOffered where it is none of `methods`."""
    if case["method"] not in methods:
        raise NotOffered(f"no method {case['method']}")
    return str(case["method"])


def need_strategy(case: dict[str, Any], *strategies: str) -> str:
    """The strategy, or NotOffered where it is none of `strategies`."""
    if case["strategy"] not in strategies:
        raise NotOffered(f"no strategy {case['strategy']}")
    return str(case["strategy"])


def one_dimension(case: dict[str, Any]) -> None:
    """NotOffered where tensors, stages or contexts are split as well."""
    if case["tp"] * case["pp"] * case["cp"] * case["sp"] > 1:
        raise NotOffered("data parallel only")


def need_recompute(case: dict[str, Any]) -> None:
    """NotOffered where recomputation is neither off nor whole: a switch cannot say it."""
    if case["recompute"] not in ("none", "full"):
        raise NotOffered("recompute is a switch: neither none nor full here")
