"""Decomposed text is composed, and nothing else is touched (case 59)."""

import unicodedata

import pytest

from stoker.data.hangul import compose

PARAGRAPH = "오늘 아침에 읽은 글은 참 좋았다. 값싼 옷을 훑어보며 닭갈비를 먹었다."


def test_a_decomposed_paragraph_is_composed() -> None:
    decomposed = unicodedata.normalize("NFD", PARAGRAPH)
    assert len(decomposed) > 2 * len(PARAGRAPH) - 20
    assert compose(decomposed) == PARAGRAPH


def test_half_composed_syllables_are_finished() -> None:
    assert compose("가\u11a8") == "각"


@pytest.mark.parametrize("text", ["plain ascii", PARAGRAPH, "ㅋㅋㅋ ㅠㅠ", "\uf914\uf95c", "Å \u212b"])
def test_other_text_is_the_same_object(text: str) -> None:
    """Compatibility jamo and ideographs of cp949 stay: a vocabulary may know them and not what NFC makes of them."""
    assert compose(text) is text or compose(text) == text


def test_letters_with_combining_marks_are_composed() -> None:
    assert compose(unicodedata.normalize("NFD", "café ガ")) == "café ガ"
