"""Proves that optimizer, scaler and any nested state survive storing bit by bit, without a pickle."""

import json
import math
import struct
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.engine.checkpoint import flatten_state, open_checkpoint, save_checkpoint, unflatten_state
from stoker.engine.checkpoint.state_io import from_plain, to_plain


def _through_disk(state: Any, tmp_path: Any) -> Any:
    tensors, skeleton = flatten_state(state)
    save_checkpoint(tmp_path, 1, {"optimizer": tensors}, {"optimizer": skeleton})
    point = open_checkpoint(tmp_path, 1)
    return unflatten_state(point.load("optimizer"), point.meta["optimizer"])


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.contiguous().reshape(-1).view(torch.uint8).equal(b.contiguous().reshape(-1).view(torch.uint8))
        )
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("kind", ["adamw", "sgd", "adam_bf16"])
def test_optimizer_state_is_bitwise_and_goes_on_bitwise(tmp_path: Any, kind: str) -> None:
    def build() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(3)
        model = torch.nn.Linear(7, 5).to(torch.bfloat16 if kind == "adam_bf16" else torch.float32)
        if kind == "sgd":
            return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)

    def steps(model: torch.nn.Module, optimizer: torch.optim.Optimizer, count: range) -> None:
        for step in count:
            x = torch.randn(4, 7, generator=torch.Generator().manual_seed(step)).to(next(model.parameters()).dtype)
            optimizer.zero_grad()
            model(x).float().square().mean().backward()
            optimizer.step()

    model, optimizer = build()
    steps(model, optimizer, range(5))
    state = {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict()}
    loaded = _through_disk(state, tmp_path)
    assert _same(state["optimizer"], loaded["optimizer"])
    again, fresh = build()
    again.load_state_dict(loaded["model"])
    fresh.load_state_dict(loaded["optimizer"])
    steps(model, optimizer, range(5, 9))
    steps(again, fresh, range(5, 9))
    assert _same(dict(model.state_dict()), dict(again.state_dict()))
    assert _same(optimizer.state_dict(), fresh.state_dict())


def test_state_before_the_first_step_is_empty_and_survives(tmp_path: Any) -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    loaded = _through_disk(optimizer.state_dict(), tmp_path)
    assert _same(loaded, optimizer.state_dict())


def test_case_26_scaler_state_comes_back_as_it_was(tmp_path: Any) -> None:
    """Scale 1,024, growth interval 2, tracker 1: the next good step doubles, the bug would load 2,048 and 0."""
    state = {"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2, "_growth_tracker": 1}
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=2)
    scaler.load_state_dict(_through_disk(state, tmp_path))
    assert scaler.state_dict() == state
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2048.0


def test_dtypes_scalars_keys_and_containers_survive(tmp_path: Any) -> None:
    state = {
        "step": torch.tensor(2**40 + 1, dtype=torch.int64),
        "moment": torch.tensor([1e-40, -0.0, math.inf]).to(torch.bfloat16),
        "masters": [torch.randn(3), (torch.zeros(0), None)],
        7: {"float": 0.1 + 0.2, "tiny": 5e-324, "minus": -0.0, "nan": math.nan, "inf": -math.inf},
        "$odd": {True: 1, 1.5: 2, "a/b": torch.ones(1), "": torch.ones(2)},
        "big": 10**30,
        "flags": [True, False, 0, 1, "", "여성"],
        "empty": {},
    }
    assert _same(_through_disk(state, tmp_path), state)


def test_two_places_never_share_a_name() -> None:
    state = {
        "a": {"b": torch.zeros(1)},
        "a.b": torch.ones(1),
        "x/y": torch.full((1,), 2.0),
        "x\\y": torch.full((1,), 3.0),
    }
    tensors, skeleton = flatten_state(state)
    assert len(tensors) == 4
    assert _same(unflatten_state(tensors, skeleton), state)


def test_a_stored_tensor_is_plain(tmp_path: Any) -> None:
    tensors, _skeleton = flatten_state({"p": torch.nn.Parameter(torch.ones(2))})
    assert type(tensors["p"]) is torch.Tensor and not tensors["p"].requires_grad


@pytest.mark.parametrize("value", [{1, 2}, object(), b"bytes", 1j, print])
def test_other_kinds_are_refused_by_place(value: Any) -> None:
    with pytest.raises(TypeError, match=r"outer\.0"):
        flatten_state({"outer": [value]})


@pytest.mark.parametrize(
    "skeleton",
    [{"$tensor": "gone"}, {"$float": "1e5"}, {"$map": [[1]]}, {"$code": "x"}, {"$tuple": 3}, {"$map": [[[1], 2]]}],
)
def test_a_skeleton_that_was_never_written_is_refused(skeleton: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        unflatten_state({}, skeleton)


_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.booleans().map(lambda b: (b,)), inner)
    ),
    max_leaves=20,
)


@given(_plain)
@settings(max_examples=200, deadline=None)
def test_any_plain_value_survives_json(value: Any) -> None:
    assert _same(from_plain(json.loads(json.dumps(to_plain(value), allow_nan=False))), value)
