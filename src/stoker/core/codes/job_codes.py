"""Codes of the job file: what each means and what to do, for `stoker explain`."""

from stoker.core.codes.code import Code
from stoker.core.i18n import N_

CODES: tuple[Code, ...] = (
    Code(
        "ST001",
        N_("not a YAML file"),
        N_(
            "The text cannot be read as YAML, or uses features that a job file does not allow (tags, merge keys, aliases without end)."
        ),
        N_("Look at the line named: indentation, a missing space after a colon, an unclosed quote."),
    ),
    Code(
        "ST002",
        N_("empty file"),
        N_("The file holds no key at all."),
        N_("Write a starter with `stoker init` and edit it."),
    ),
    Code(
        "ST003",
        N_("key twice"),
        N_("The same key stands twice in one section; YAML readers would silently keep the last."),
        N_("Delete one of the two lines."),
    ),
    Code(
        "ST004",
        N_("not a mapping"),
        N_("A job file is a mapping of keys to values; this file is a list or a single value."),
        N_("Start from `stoker init`."),
    ),
    Code(
        "ST005",
        N_("file missing"),
        N_("The file named does not exist or cannot be opened."),
        N_("Check the path; paths inside a job file are relative to that file."),
    ),
    Code(
        "ST006",
        N_("wrong encoding"),
        N_("Job files are UTF-8 (a byte-order mark is fine)."),
        N_("Save the file as UTF-8 in your editor."),
    ),
    Code(
        "ST007",
        N_("bad override"),
        N_("`--set` takes section.key=value, with a YAML value."),
        N_("For example: --set train.lr=3e-5 --set hardware.gpus='[L4]'."),
    ),
    Code(
        "ST008",
        N_("unknown code"),
        N_("`stoker explain` was given a code that does not exist."),
        N_("Codes look like ST012; `stoker explain` without one lists them all."),
    ),
    Code(
        "ST009",
        N_("wrong usage"),
        N_("The command line names a command, an option or a value that does not exist, or lacks one that is needed."),
        N_("`stoker --help` lists the commands, `stoker COMMAND --help` the options of one."),
    ),
    Code(
        "ST010",
        N_("unknown key"),
        N_(
            "The key does not exist in this section. Unknown keys are errors, because a misspelt key that is silently ignored costs a whole run."
        ),
        N_("Use the nearest key named in the message, or see `stoker init` for all of them."),
    ),
    Code(
        "ST011",
        N_("missing key"),
        N_("A required key is not in the file."),
        N_("Add it; the message says what it means."),
    ),
    Code(
        "ST012",
        N_("value not allowed"),
        N_("The value has the wrong type, or lies outside what makes sense."),
        N_("The message names the key's meaning and what was expected."),
    ),
    Code(
        "ST013",
        N_("impossible combination"),
        N_("Each key is fine, but together they cannot work."),
        N_("Change one of the keys named."),
    ),
)
