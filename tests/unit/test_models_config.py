"""Proves that no config, however wrong, does anything but give a shape or a ModelError that names a place; and that
shapes are sane: positive counts, groups that add up, active parameters within the total."""

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.catalogue.models import FAMILIES
from stoker.catalogue.models.api import arch_from_config, bundled_models
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.core.errors import ModelError
from stoker.core.job import Task

_TYPES = [(family, model_type) for family in FAMILIES for model_type in family.model_types]
_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 300),
    st.sampled_from([10**7, 10**12, -(10**12)]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=8),
    st.lists(st.one_of(st.integers(-2, 64), st.text(max_size=3)), max_size=5),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
_EXTRA = [
    "layer_types", "head_dim", "sliding_window_pattern", "global_attn_every_n_layers", "position_buckets",
    "norm_rel_ebd", "num_labels", "id2label", "conv_kernel_size", "embedding_size", "share_att_key",
]  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_config_gives_a_shape_or_a_model_error(data: st.DataObject) -> None:
    family, model_type = data.draw(st.sampled_from(_TYPES))
    keys = sorted({*family.model_types[model_type], *_EXTRA})
    changed: dict[str, Any] = data.draw(st.dictionaries(st.sampled_from(keys), _VALUES, max_size=4))
    task: Task = data.draw(st.sampled_from(family.tasks))
    try:
        arch = arch_from_config({**changed, "model_type": model_type}, task=task, num_labels=3, name="fuzzed")
    except ModelError as error:
        assert error.code in ("ST205", "ST210") and error.place
        return
    assert arch.num_params > 0
    assert 0 < arch.active_params <= arch.num_params
    assert all(group.num_params >= 0 and group.repeats >= 1 for group in arch.groups)
    assert all(math.isfinite(t.elements) and t.elements >= 0 for group in arch.groups for t in group.saved)


@pytest.mark.parametrize("model_type", [None, 5, True, ["bert"], {"a": 1}, "", "foo"])
def test_a_model_type_that_is_none_is_a_model_error(model_type: Any) -> None:
    with pytest.raises(ModelError, match="ST204"):
        arch_from_config({"model_type": model_type}, task="text_classification", num_labels=2, name="odd")


@pytest.mark.parametrize("model", bundled_models(), ids=lambda model: model.name)
def test_bundled_shapes_are_sane(model: Any) -> None:
    family = next(family for family in FAMILIES if model.config["model_type"] in family.model_types)
    for task in family.tasks:
        arch = arch_from_config(model.config, task=task, num_labels=5, name=model.name)
        blocks = [group for group in arch.groups if group.kind in ("block", "conv")]
        assert sum(group.repeats for group in blocks if group.kind == "block") in (0, arch.num_hidden_layers)
        assert blocks and all(group.input_elements > 0 for group in blocks if group.kind == "block")
        assert len({group.name for group in arch.groups}) == len(arch.groups)
        assert (arch.tokens_per_sample is None) == (arch.modality == "text")
        assert arch.hub_id == model.hub_id and arch.source.startswith("https://")


def test_every_family_ships_a_shape() -> None:
    shipped = {model.config["model_type"] for model in bundled_models()}
    assert all(any(t in shipped for t in family.model_types) for family in FAMILIES)


def test_reader_takes_whole_floats_but_not_others() -> None:
    assert ConfigReader({"a": 64.0}, "here").size("a") == 64
    with pytest.raises(ModelError, match="here a"):
        ConfigReader({"a": 64.5}, "here").size("a")


def test_layer_types_of_the_wrong_length() -> None:
    config = {"model_type": "gemma2", "layer_types": ["full_attention"]}
    with pytest.raises(ModelError, match="layer_types"):
        arch_from_config(config, task="causal_lm", name="gemma")


def test_more_experts_a_token_than_there_are() -> None:
    config = {"model_type": "mixtral", "num_experts_per_tok": 9}
    with pytest.raises(ModelError, match="num_experts_per_tok"):
        arch_from_config(config, task="causal_lm", name="moe")


def test_too_small_an_image() -> None:
    for model_type in ("vit", "convnext"):
        with pytest.raises(ModelError, match="image_size"):
            arch_from_config({"model_type": model_type}, task="image_classification", name="tiny", image_size=8)
