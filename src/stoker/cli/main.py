"""The command: one file a subcommand, errors and exit codes in one place.

The language is chosen before the command modules are imported, because their help texts are translated then.
"""

import gc
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from stoker.cli.console import NobodyListens, discard
from stoker.core.errors import StokerError
from stoker.core.i18n import _, set_language

EXIT_BUG = 1
EXIT_INTERRUPTED = 130
# Done in a second and with little garbage in cycles: walking every loaded class over and over is a tenth of their time.
_BRIEF = ("plan", "size", "offers", "explain", "init")


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `stoker`. Exits 0 ok, 1 bug, 2 bad input, 3 nothing fits, 4 partly done, 5 nothing done."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not sys.warnoptions:  # python -W and PYTHONWARNINGS still show them
        warnings.simplefilter("ignore")  # advice of libraries to their callers, which is us and not the user
    set_language(_requested_language(arguments))
    if arguments[:1] and arguments[0] in _BRIEF:
        gc.disable()
    try:
        code = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (BrokenPipeError, NobodyListens):
        discard(sys.stdout)  # `stoker ... | head` ends silently
        code = 0
    finally:
        gc.enable()  # for whoever calls this from Python
    sys.exit(code)


def _requested_language(arguments: Sequence[str]) -> str | None:
    for position, word in enumerate(arguments):
        if word == "--lang" and position + 1 < len(arguments):
            return "ko" if arguments[position + 1].lower().startswith("ko") else "en"
        if word.startswith("--lang="):
            return "ko" if word[7:].lower().startswith("ko") else "en"
    return None


def _run(arguments: Sequence[str]) -> int:
    from stoker.cli.app import build_app

    try:
        result: Any = build_app()(args=list(arguments), prog_name="stoker", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except StokerError as error:
        _show_error(error, as_json="--json" in arguments)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (BrokenPipeError, NobodyListens):
        raise
    except ModuleNotFoundError as error:
        missing = _missing_part(error)
        if missing is None:
            return _usage_or_bug(error, as_json="--json" in arguments)
        _show_error(missing, as_json="--json" in arguments)
        return missing.exit_code
    except Exception as error:
        return _usage_or_bug(error, as_json="--json" in arguments)


def _show_error(error: StokerError, *, as_json: bool) -> None:
    from stoker.cli.console import notice, print_json

    if as_json and error.place != "stdout":
        print_json({"error": {"code": error.code, "place": error.place, "problem": error.problem, "fix": error.fix}})
    notice(_("error") + f" {error}\n  " + _("more: stoker explain {code}").format(code=error.code))


def _missing_part(error: ModuleNotFoundError) -> StokerError | None:
    """What to install where an optional part is missing; None where the module is none of them: a bug."""
    from stoker.core.errors import EnvironmentProblem
    from stoker.observe.parts import PARTS

    part = next((part for part in PARTS if part.module == (error.name or "").partition(".")[0]), None)
    if part is None:
        return None
    return EnvironmentProblem(
        "ST501",
        _("this needs {name}, which is not installed").format(name=part.distribution),
        place="stoker",
        fix=part.install,
    )


def _usage_or_bug(error: Exception, *, as_json: bool) -> int:
    from stoker.cli.console import notice, print_json

    if type(error).__name__ == "NoArgsIsHelpError":
        notice(str(error))
        return 2
    if hasattr(error, "show") and hasattr(error, "exit_code"):  # typer's usage errors
        from stoker.cli.usage import usage_error

        wrong = usage_error(error)
        _show_error(wrong, as_json=as_json)
        return wrong.exit_code
    if type(error).__name__ in ("Exit", "Abort"):
        return int(getattr(error, "exit_code", EXIT_BUG))
    if os.environ.get("STOKER_TRACEBACK"):
        traceback.print_exception(error)
    problem = _("this is a bug in stoker: {kind}: {error}").format(kind=type(error).__name__, error=error)
    if as_json:
        print_json({"error": {"code": None, "place": "stoker", "problem": problem, "fix": ""}})
    notice(problem)
    notice("  -> " + _("set STOKER_TRACEBACK=1 and run it again for the traceback, then report it"))
    return EXIT_BUG
