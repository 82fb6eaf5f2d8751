"""Codes of environment: what each means and what to do, for `stoker explain`."""

from stoker.core.codes.code import Code
from stoker.core.i18n import N_

CODES: tuple[Code, ...] = (
    Code(
        "ST501",
        N_("optional part missing"),
        N_(
            "The command needs a Python package that is not part of the planning installation: training and prediction need torch and transformers, for example."
        ),
        N_("Install what the message names; `stoker doctor` lists all optional parts and what each unlocks."),
    ),
    Code(
        "ST502",
        N_("output cannot be written"),
        N_("The answer was ready, but standard output refused it: its disk is full, for example."),
        N_("Make room there, or send the output to another file."),
    ),
    Code(
        "ST503",
        N_("no room for tokens"),
        N_("Tokenised data is kept on disk; the cache folder and the temporary folder are both full or read-only."),
        N_("Make room, or set XDG_CACHE_HOME (or TMPDIR) to a folder on a larger disk."),
    ),
)
