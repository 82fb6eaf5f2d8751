"""Decomposed text (NFD, as macOS writes it) composed again, before anything is counted or tokenised (case 59).

Only decomposed sequences are touched: Hangul written as conjoining jamo, and letters followed by combining marks.
A plain NFC would also swap compatibility ideographs of cp949 for other characters that a vocabulary may lack.
"""

import re
import unicodedata

_DECOMPOSED = re.compile(
    "[\uac00-\ud7a3]?[\u1100-\u11ff\ua960-\ua97f\ud7b0-\ud7ff]+|[^\\W\u0300-\u036f][\u0300-\u036f]+|[\u3040-\u30ff][\u3099\u309a]"
)


def compose(text: str) -> str:
    """`text` with decomposed sequences composed; the same object when there is none."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text
    return _DECOMPOSED.sub(_composed, text)


def _composed(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", match.group())
