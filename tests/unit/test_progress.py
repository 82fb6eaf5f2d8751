"""Proves that a run's progress lines are in the user's language and name the unit that they count."""

from collections.abc import Iterator

import pytest
from report_samples import step

from stoker.cli.progress import PlainProgress
from stoker.core.i18n import set_language


@pytest.fixture(autouse=True)
def english_after() -> Iterator[None]:
    yield
    set_language("en")


@pytest.mark.parametrize(
    ("language", "unit", "shown"),
    [
        ("en", "samples", "samples/s"),
        ("en", "tokens", "tokens/s"),
        ("ko", "samples", "샘플/초"),
        ("ko", "tokens", "토큰/초"),
    ],
)
def test_the_rate_is_in_the_users_words(
    language: str, unit: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_language(language)
    progress = PlainProgress(lambda usd: f"{usd:.2f}")
    progress.start(total_steps=100, done_steps=0, unit=unit)
    progress.step(step(10, 0.5), total_steps=100)
    assert shown in capsys.readouterr().err
