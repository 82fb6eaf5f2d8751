"""Renews the plan that both READMEs show: the real output of the command they name, never edited by hand."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "stoker", "plan", "recipes/kcelectra-790k.yaml", "--lang"]
_SHOWN_PLAN = re.compile(r"(kcelectra-790k\.yaml.*?\n```\n).*?(\n```\n)", re.DOTALL)


def main() -> None:
    """Runs the plan once a language and puts it into the first plain block after the command's name."""
    for name, language in (("README.md", "en"), ("README.ko.md", "ko")):
        done = subprocess.run([*COMMAND, language], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
        file = ROOT / name
        old = file.read_text(encoding="utf-8")
        shown = _SHOWN_PLAN.search(old)
        if shown is None:
            sys.exit(f"{name} names no plan")
        new = old[: shown.end(1)] + done.stdout.rstrip() + old[shown.start(2) :]
        file.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
