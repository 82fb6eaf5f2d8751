"""JSON of dataclasses: what goes out comes back equal, NaN never leaves, and what does not fit is named by its path."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.codec import decode, dumps, encode, loads
from stoker.core.estimate import Source, TimeEstimate
from stoker.core.job import DataSpec, Job, ParallelSpec, RunPins, TextFields
from stoker.core.profile import DataProfile, lengths_declared
from stoker.core.record import StepLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    name: str
    kind: Literal["a", "b"] = "a"
    hidden: str = field(default="x", metadata={"internal": True})


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    inner: Inner
    pair: tuple[int, float]
    many: tuple[Inner, ...] = ()
    table: Mapping[str, float] = field(default_factory=dict)
    maybe: int | None = None
    colour: Colour = Colour.RED
    either: Inner | Literal["auto"] = "auto"
    anything: Any = None


FULL = Outer(
    inner=Inner(name="한글", kind="b"),
    pair=(3, 0.5),
    many=(Inner(name="x"), Inner(name="y")),
    table={"a": 1.0, "b": -2.5},
    maybe=7,
    either=Inner(name="z"),
    anything={"deep": [1, None, "x"]},
)


def test_out_and_back_is_equal() -> None:
    assert decode(Outer, json.loads(dumps(FULL))) == FULL


def test_korean_stays_readable_and_internal_fields_stay_inside() -> None:
    text = dumps(FULL)
    assert "한글" in text
    assert "hidden" not in text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_becomes_null(value: float) -> None:
    assert dumps({"a": [value]}) == '{"a": [null]}'


@pytest.mark.parametrize("text", ['{"a": NaN}', "[Infinity]", "[-Infinity]", '{"a": 1, "a": 2}', "{", ""])
def test_reading_is_strict(text: str) -> None:
    with pytest.raises(ValueError):
        loads(text)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"inner": {"name": 5}}, "inner.name"),
        ({"inner": {"name": "x", "kind": "c"}}, "inner.kind"),
        ({"inner": []}, "inner"),
        ({"pair": [1]}, "pair"),
        ({"pair": [1.5, 2]}, "pair[0]"),
        ({"pair": [True, 2]}, "pair[0]"),
        ({"many": [{"name": "x"}, {"name": None}]}, "many[1].name"),
        ({"table": {"a": "x"}}, "table.a"),
        ({"maybe": "7"}, "maybe"),
        ({"either": "manual"}, "either"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], path: str) -> None:
    value = {**encode(FULL), **change}
    with pytest.raises(ValueError) as caught:
        decode(Outer, value)
    assert str(caught.value).startswith(path + ":")


def test_a_missing_required_key_is_an_error_and_an_unknown_one_is_not() -> None:
    """A record of a later minor version may carry more keys; it must not carry fewer."""
    with pytest.raises(ValueError, match="pair"):
        decode(Outer, {"inner": {"name": "x"}})
    assert decode(Outer, {**encode(FULL), "later": 1}) == FULL


def test_integers_pass_for_floats_only() -> None:
    assert decode(float, 3) == 3.0
    assert isinstance(decode(float, 3), float)
    with pytest.raises(ValueError):
        decode(int, 3.0)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(_json)
def test_any_value_leaves_as_strict_json(value: Any) -> None:
    loads(dumps(value))


@given(_json)
def test_decoding_anything_raises_value_error_only(value: Any) -> None:
    for hint in (Outer, StepLine, Job, tuple[int, ...], int | None, Source):
        try:
            decode(hint, value)
        except ValueError:
            continue


def test_the_real_nouns_come_back_equal() -> None:
    job = Job(
        model={"family": "electra", "hidden_size": 64},
        task="causal_lm",
        data=DataSpec(train="a", text=TextFields(prompt="p", response="r"), labels=["x", "y"]),
        run=RunPins(micro_batch_size=4, parallel=ParallelSpec(dp_shard=2)),
    )
    profile = DataProfile(
        num_samples=5, lengths=lengths_declared(10, 20, 30), label_counts={"욕설": 3}, source=Source.MEASURED
    )
    time = TimeEstimate(
        step_s=1.0, step_terms={"compute": 1.0}, total_s=2.0, total_terms={}, low_s=1.5, high_s=3.0, num_steps=2
    )
    for value in (job, profile, time):
        assert decode(type(value), loads(dumps(value))) == value
