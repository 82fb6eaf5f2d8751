"""Codes of plan: what each means and what to do, for `stoker explain`."""

from stoker.core.codes.code import Code
from stoker.core.i18n import N_

CODES: tuple[Code, ...] = (
    Code(
        "ST301",
        N_("GPU name unknown or of several products"),
        N_(
            "H100 is three products (SXM, PCIe, NVL) whose peaks differ by up to a third and whose memory differs too; a plan for one is wrong for the others. So a name must mean exactly one product of the table."
        ),
        N_("Write one of the names in the message; `stoker offers` shows them beside their prices."),
    ),
    Code(
        "ST302",
        N_("not a table of offers"),
        N_("The price file cannot be read, or lacks a column. It is a CSV in UTF-8 with one offer a row."),
        N_("Give it the columns in the message; empty cells are fine where a value is unknown."),
    ),
    Code(
        "ST303",
        N_("provider or region without offers"),
        N_("No offer of the price snapshot has this provider or region."),
        N_("Use one of the names in the message."),
    ),
    Code(
        "ST304",
        N_("no exchange rate"),
        N_("The bundled rates, each with its date, do not have this currency."),
        N_("Use one of the currencies in the message."),
    ),
)
