"""Units for people: each formatter at its boundaries, in English and Korean, and in what cp949 can show."""

import math

import pytest

from stoker.core.human import (
    format_bytes,
    format_count,
    format_duration,
    format_large,
    format_money,
    format_number,
    format_percent,
    format_quantity,
    format_rate,
)
from stoker.core.i18n import set_language


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9_994_000, "9.99 MB"),
        (9_999_000, "10.0 MB"),
        (128.5e9, "128.5 GB"),
        (2.5e12, "2.50 TB"),
        (None, "-"),
        (math.nan, "-"),
    ],
)
def test_bytes_are_powers_of_ten(num_bytes: float | None, text: str) -> None:
    assert format_bytes(num_bytes) == text


def test_binary_bytes_say_so() -> None:
    assert format_bytes(79.2 * 2**30, binary=True) == "79.2 GiB"
    assert format_bytes(79.2 * 2**30) == "85.0 GB"  # the 7 % that mixing the two costs


@pytest.mark.parametrize(
    ("seconds", "english", "korean"),
    [
        (0.0, "0 ms", "0 ms"),
        (0.0123, "12.3 ms", "12.3 ms"),
        (0.9996, "1.00 s", "1.00초"),
        (12.44, "12.4 s", "12.4초"),
        (59.96, "1 min", "1분"),
        (725, "12 min 5 s", "12분 5초"),
        (3599.6, "1 h", "1시간"),
        (11_520, "3 h 12 min", "3시간 12분"),
        (86_399, "1 d", "1일"),
        (187_200, "2 d 4 h", "2일 4시간"),
        (-11_520, "-3 h 12 min", "-3시간 12분"),
    ],
)
def test_durations(seconds: float, english: str, korean: str) -> None:
    assert format_duration(seconds) == english
    set_language("ko")
    assert format_duration(seconds) == korean


@pytest.mark.parametrize(
    ("usd", "text"),
    [(0.0, "$0.00"), (0.0043, "$0.0043"), (0.1, "$0.10"), (12.345, "$12.35"), (1234.5, "$1,234"), (-2.0, "-$2.00")],
)
def test_dollars(usd: float, text: str) -> None:
    assert format_money(usd) == text


def test_won_needs_a_rate_and_follows_the_language() -> None:
    assert format_money(12.0, "KRW", 1400.0) == "KRW 16,800"
    assert format_money(12.0, "KRW", None) == "$12.00"
    set_language("ko")
    assert format_money(12.0, "KRW", 1400.0) == "16,800원"


def test_large_counts_are_idiomatic() -> None:
    assert format_count(790_000) == "790,000"
    assert format_large(127_784_458) == "127.8 M"
    assert format_large(8_030_261_248) == "8.03 B"
    set_language("ko")
    assert format_large(127_784_458) == "1.28억"
    assert format_large(8_030_261_248) == "80.3억"
    assert format_large(790_000) == "79.0만"


def test_numbers_keep_their_significant_digits() -> None:
    assert format_number(0.81234) == "0.8123"
    assert format_number(2e-5) == "2e-05"
    assert format_number(9.99996) == "10.00"
    assert format_number(math.nan) == "nan"
    assert format_number(None) == "-"


def test_percent_and_rates() -> None:
    assert format_percent(0.1234, signed=True) == "+12.3 %"
    assert format_percent(-0.05) == "-5.0 %"
    assert format_percent(1.5) == "150 %"
    assert format_rate(1234.4, "samples") == "1,234 samples/s"


def test_quantities_take_their_unit_from_the_comparison() -> None:
    assert format_quantity(5e9, "bytes") == "5.00 GB"
    assert format_quantity(90, "s") == "1 min 30 s"
    assert format_quantity(1.5, "usd") == "$1.50"
    assert format_quantity(10.0, "samples_per_s") == "10.0 samples/s"
    assert format_quantity(0.5, "frac") == "50.0 %"


def test_everything_prints_on_a_korean_windows_console() -> None:
    for lang in ("en", "ko"):
        set_language(lang)
        texts = [format_money(3.0, "KRW", 1400.0), format_duration(1e6), format_large(1e10), format_percent(0.1)]
        assert all(text.encode("cp949") for text in texts)
