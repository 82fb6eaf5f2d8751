"""Codes of records and reports: what each means and what to do, for `stoker explain`."""

from stoker.core.codes.code import Code
from stoker.core.i18n import N_

CODES: tuple[Code, ...] = (
    Code(
        "ST601",
        N_("no record"),
        N_("The folder or file named holds no record.jsonl: it is no run folder, or the run never started."),
        N_("Name the folder that `stoker run --out` wrote."),
    ),
    Code(
        "ST602",
        N_("damaged record"),
        N_(
            "A line in the middle of record.jsonl is no JSON object of a known kind. A torn last line is normal after a kill and is skipped; a damaged line before it means that the file was changed."
        ),
        N_("Restore the file from a copy, or remove the line named."),
    ),
    Code(
        "ST603",
        N_("record of another version"),
        N_("The record has no header line, or was written by a newer stoker with another schema."),
        N_("Read it with the stoker that wrote it, or update stoker."),
    ),
    Code(
        "ST604",
        N_("report not written"),
        N_("The file for the report cannot be created: a missing permission, a full disk, or a folder of that name."),
        N_("Name another file with --html, --png or -o."),
    ),
    Code(
        "ST605",
        N_("no matplotlib"),
        N_("A PNG is drawn with matplotlib, an optional part. The HTML report draws its charts without it."),
        N_("Install it with: pip install 'stoker[plots]'."),
    ),
    Code(
        "ST610",
        N_("no table of measurements"),
        N_("`stoker validate --rows` was given a name that is no file."),
        N_("Name a CSV file of the public schema."),
    ),
    Code(
        "ST611",
        N_("measurement columns missing"),
        N_(
            "Each row of a table of measurements says at least its source, model, gpu, metric and value; the file's first line must name these columns."
        ),
        N_("Add the missing columns; the README lists all of them."),
    ),
    Code(
        "ST612",
        N_("no measurements"),
        N_("The table has a header but no row."),
        N_("Give a table with measured rows."),
    ),
    Code(
        "ST613",
        N_("broken CSV"),
        N_("A line of the table is no CSV: a quote that never closes, or a cell longer than 100,000 characters."),
        N_("Repair the line named."),
    ),
    Code(
        "ST614",
        N_("column twice"),
        N_("Two columns of the table have one name, so nobody can say which of them holds the value."),
        N_("Rename or remove one of them."),
    ),
)
