"""Currency units per US dollar, each with the date of its rate, from data/exchange.csv; never fetched in planning."""

import functools
from dataclasses import dataclass

from stoker.catalogue.tables import read_rows
from stoker.core.errors import PlanningError
from stoker.core.i18n import _


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRate:
    """`units_per_usd` on `date` (ISO), as `source` printed it."""

    currency: str
    units_per_usd: float
    date: str
    source: str


@functools.cache
def _all_rates() -> dict[str, ExchangeRate]:
    return {
        row["currency"]: ExchangeRate(
            currency=row["currency"],
            units_per_usd=float(row["units_per_usd"]),
            date=row["date"],
            source=row["source"],
        )
        for row in read_rows("exchange.csv")
    }


def exchange_rate(currency: str) -> ExchangeRate:
    """The bundled rate of `currency`. Raises PlanningError ST304 for a currency without one."""
    rate = _all_rates().get(currency.upper())
    if rate is None:
        raise PlanningError(
            "ST304",
            _("there is no exchange rate for {currency}").format(currency=currency),
            place=currency,
            fix=_("one of: {names}").format(names=", ".join(_all_rates())),
        )
    return rate
