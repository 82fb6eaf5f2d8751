"""The language of what a person reads: English msgids, gettext catalogues under `stoker/locale`.

`_` translates at call time, so that `--lang` works for modules that were imported before it was read.
Codes, JSON keys, file formats and log fields are never translated.
"""

import gettext
import locale
import os
from pathlib import Path

LANGUAGES = ("en", "ko")
_DOMAIN = "stoker"
_LOCALE_DIR = Path(__file__).resolve().parent.parent / "locale"
_active: gettext.NullTranslations = gettext.NullTranslations()
_language = "en"


def detect_language() -> str:
    """Language of the environment: LC_ALL, LC_MESSAGES, LANG in that order, else the OS locale, else English."""
    for name in ("STOKER_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name, "")
        if value:
            return "ko" if value.lower().startswith("ko") else "en"
    try:
        tag = locale.getlocale()[0] or ""
    except ValueError:
        tag = ""
    return "ko" if tag.lower().startswith(("ko", "korean")) else "en"


def set_language(language: str | None) -> str:
    """Make `language` (or the environment's, when None) the one that `_` answers in; returns the one chosen."""
    global _active, _language
    _language = language or detect_language()
    if _language == "en":
        _active = gettext.NullTranslations()
    else:
        _active = gettext.translation(_DOMAIN, _LOCALE_DIR, languages=[_language], fallback=True)
    return _language


def language() -> str:
    """The language in force: `en` or `ko`."""
    return _language


def _(message: str) -> str:
    """`message` in the language in force."""
    return _active.gettext(message) if message else ""


def N_(message: str) -> str:
    """Mark `message` for the catalogue without translating it yet."""
    return message
