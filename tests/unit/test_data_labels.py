"""Labels: the space they make, and every wrong value named with its row."""

import pytest

from stoker.core.errors import DataError
from stoker.data.labels import LabelSpace, class_name, space_of_classes, zero_or_one


@pytest.mark.parametrize(
    ("value", "meant"),
    [(0, 0), (1, 1), ("1", 1), ("0.0", 0), (1.0, 1), (True, 1), ("false", 0), ("", None), (None, None)],
)
def test_spellings_of_zero_and_one(value: object, meant: int | None) -> None:
    assert zero_or_one(value, "f:1") == meant


@pytest.mark.parametrize("value", [2, "yes", -1, 0.5, "01"])
def test_anything_else_is_an_error_with_its_row(value: object) -> None:
    with pytest.raises(DataError) as caught:
        zero_or_one(value, "f.csv:7 male")
    assert (caught.value.code, caught.value.place) == ("ST120", "f.csv:7 male")


def test_classes_are_text_whatever_their_type() -> None:
    assert [class_name(v, "f:1") for v in (1, 1.0, "1", " 좋음 ", True, None, float("nan"))] == [
        "1", "1", "1", "좋음", "1", None, None,
    ]  # fmt: skip
    with pytest.raises(DataError, match="ST111"):
        class_name(["a"], "f:1")


def test_classes_are_sorted_numbers_by_size() -> None:
    assert space_of_classes(None, ["10", "2", "1", "2"], "f").names == ("1", "2", "10")
    assert space_of_classes(None, ["나", "가"], "f").names == ("가", "나")
    assert space_of_classes(["나", "가"], ["가", "나"], "f").names == ("나", "가")


def test_nothing_to_learn() -> None:
    with pytest.raises(DataError, match="ST122"):
        space_of_classes(None, ["a", "a"], "f")
    with pytest.raises(DataError, match="ST126"):
        space_of_classes(None, [str(i) for i in range(2000)], "f")


def test_words_of_a_target() -> None:
    assert LabelSpace(names=("a", "b"), problem="single_label").words(1) == ("b",)
    assert LabelSpace(names=("a", "b"), problem="multi_label").words([1, 0]) == ("a",)
