"""Numbers as people read them: bytes, durations, money, counts, rates, shares; in the language in force.

Inputs are SI (bytes, seconds, USD, fractions); nothing else in stoker formats a unit. Missing values read `-`, so
that a table keeps its shape. Only characters that cp949 has are used.
"""

import math

from stoker.core.i18n import _, language
from stoker.core.units import DAY_S, GIB, HOUR_S, KIB, MIB, MINUTE_S

MISSING = "-"
_DECIMAL_STEPS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_BINARY_STEPS = ((float(2**40), "TiB"), (float(GIB), "GiB"), (float(MIB), "MiB"), (float(KIB), "KiB"))
_ENGLISH_STEPS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_KOREAN_STEPS = ((1e12, "조"), (1e8, "억"), (1e4, "만"))


def _digits(value: float, significant: int = 3) -> str:
    """`value` with at most `significant` digits after rounding, thousands separated: 0.0123, 1.23, 12.3, 1,234."""
    if value == 0:
        return "0"
    decimals = significant - 1 - math.floor(math.log10(abs(value)))
    decimals = min(max(decimals, 0), 8)
    rounded = round(value, decimals)
    if rounded and math.floor(math.log10(abs(rounded))) > math.floor(math.log10(abs(value))):
        decimals = max(decimals - 1, 0)  # 9.996 rounds to 10.0, not 10.00
    return f"{rounded:,.{decimals}f}"


def format_number(value: float | None, significant: int = 4) -> str:
    """A dimensionless number, such as a metric: `0.8123`, `12.35`; very small ones as `2e-05`."""
    if value is None or not math.isfinite(value):
        return MISSING if value is None else str(value)
    if value and abs(value) < 1e-3:
        return f"{value:.2g}"
    return _digits(value, significant)


def format_bytes(num_bytes: float | None, *, binary: bool = False) -> str:
    """Bytes as `128.5 GB` (1e9), or as `119.7 GiB` (2^30) where `binary`. One decimal from 10 up, two below."""
    if num_bytes is None or not math.isfinite(num_bytes):
        return MISSING
    for size, unit in _BINARY_STEPS if binary else _DECIMAL_STEPS:
        if abs(num_bytes) >= size:
            value = num_bytes / size
            return f"{value:,.1f} {unit}" if abs(value) >= 9.995 else f"{value:.2f} {unit}"
    return f"{num_bytes:.0f} B"


def format_duration(seconds: float | None) -> str:
    """Seconds as `350 ms`, `12.4 s`, `12 min 5 s`, `3 h 12 min`, `2 d 4 h`; in Korean `3시간 12분`."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 0.9995:
        return _("{value} ms").format(value=_digits(seconds * 1000.0))
    if seconds < MINUTE_S - 0.05:
        return _("{value} s").format(value=_digits(seconds))
    if seconds < HOUR_S - 0.5:
        minutes, rest = divmod(round(seconds), 60)
        return _join((minutes, _("{value} min")), (rest, _("{value} s")))
    if seconds < DAY_S - 30.0:
        hours, rest = divmod(round(seconds / MINUTE_S), 60)
        return _join((hours, _("{value} h")), (rest, _("{value} min")))
    days, rest = divmod(round(seconds / HOUR_S), 24)
    return _join((days, _("{value} d")), (rest, _("{value} h")))


def _join(*parts: tuple[int, str]) -> str:
    """`3 h 12 min` of ((3, '{value} h'), (12, '{value} min')); a zero rest is left out."""
    kept = [unit.format(value=f"{number:,}") for number, unit in parts if number]
    return " ".join(kept)


def format_money(usd: float | None, currency: str = "USD", usd_krw: float | None = None) -> str:
    """USD as `$12.34`, or in won at `usd_krw` as `KRW 17,030` (Korean: `17,030원`). Cents vanish from $1,000 up.

    Asked for KRW without a rate, the amount stays in USD: an unknown rate is never guessed.
    """
    if usd is None or not math.isfinite(usd):
        return MISSING
    if currency == "KRW" and usd_krw:
        won = usd * usd_krw
        amount = f"{won:,.0f}" if abs(won) < 10_000 else f"{round(won, -1):,.0f}"
        return f"{amount}원" if language() == "ko" else f"KRW {amount}"
    sign = "-" if usd < 0 else ""
    value = abs(usd)
    if value >= 1000:
        return f"{sign}${value:,.0f}"
    if value >= 0.095 or value == 0:
        return f"{sign}${value:,.2f}"
    return f"{sign}${_digits(value, 2)}"


def format_count(number: float | None) -> str:
    """A count in full: `790,000`."""
    return f"{number:,.0f}" if number is not None and math.isfinite(number) else MISSING


def format_large(number: float | None) -> str:
    """A large count in short: `127.8 M`, `8.03 B`; in Korean `1.28억`, `80.3억`."""
    if number is None or not math.isfinite(number):
        return MISSING
    korean = language() == "ko"
    for size, unit in _KOREAN_STEPS if korean else _ENGLISH_STEPS:
        if abs(number) >= size:
            digits = _digits(number / size, 4 if abs(number) / size >= 100 else 3)
            return f"{digits}{unit}" if korean else f"{digits} {unit}"
    return f"{number:,.0f}"


def format_rate(per_second: float | None, unit: str) -> str:
    """A rate of `unit` (already in the user's language) a second: `1,234 samples/s`; in Korean `1,234 샘플/초`."""
    if per_second is None or not math.isfinite(per_second):
        return MISSING
    return _("{value} {unit}/s").format(value=_digits(per_second), unit=unit)


def format_percent(frac: float | None, *, signed: bool = False) -> str:
    """A fraction as `12.3 %`; with `signed` as `+12.3 %`."""
    if frac is None or not math.isfinite(frac):
        return MISSING
    percent = frac * 100.0
    decimals = 0 if abs(percent) >= 99.95 else 1
    text = f"{percent:+.{decimals}f}" if signed else f"{percent:.{decimals}f}"
    return f"{text} %"


def format_quantity(value: float | None, unit: str, *, currency: str = "USD", usd_krw: float | None = None) -> str:
    """`value` in one of the units of core.Comparison: bytes, s, usd, samples_per_s, tokens_per_s, frac; else plain."""
    if unit == "bytes":
        return format_bytes(value)
    if unit == "s":
        return format_duration(value)
    if unit == "usd":
        return format_money(value, currency, usd_krw)
    if unit == "samples_per_s":
        return format_rate(value, _("samples"))
    if unit == "tokens_per_s":
        return format_rate(value, _("tokens"))
    return format_percent(value) if unit == "frac" else format_number(value)
