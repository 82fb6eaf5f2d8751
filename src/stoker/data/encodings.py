"""Which text encoding a file has, decided by strict decoding of every byte: no guess, no replacement character.

Order: a byte-order mark, UTF-8, cp949 (case 57: UTF-8 first, because UTF-8 Hangul often decodes as cp949 to
garbage; cp949 and not euc-kr, which lacks 8,822 syllables). The locale of the machine plays no part.
"""

import codecs
from dataclasses import dataclass
from pathlib import Path

from stoker.core.errors import DataError
from stoker.core.i18n import _

_BLOCK_BYTES = 1 << 20
_NO_FILE_ENCODINGS = ("idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape")  # of names and literals
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Where strict decoding stopped: `offset` in bytes from 0, `line` from 1, `byte` its value."""

    offset: int
    line: int
    byte: int


def detect_encoding(file: Path, declared: str | None = None) -> str:
    """The codec that decodes all of `file`. Raises DataError ST105 with line and byte offset, or ST104 when empty."""
    with file.open("rb") as stream:
        head = stream.read(4)
    if not head:
        raise DataError("ST104", _("the file is empty"), place=str(file), fix=_("check how it was written"))
    if declared is not None:
        return _declared(file, declared)
    for mark, codec in _BOMS:
        if head.startswith(mark):
            return _checked(file, codec)
    utf8 = first_failure(file, "utf-8")
    if utf8 is None:
        return "utf-8"
    cp949 = first_failure(file, "cp949")
    if cp949 is None:
        return "cp949"
    # the codec that got further is the one the file was meant in; the other failed at its first Hangul
    codec, failure = ("UTF-8", utf8) if utf8.offset >= cp949.offset else ("cp949", cp949)
    raise _undecodable(file, codec, failure)


def first_failure(file: Path, codec: str) -> Failure | None:
    """The first byte of `file` that is not `codec`, or None; NUL characters count as failures."""
    decoder = codecs.getincrementaldecoder(codec)("strict")
    consumed, lines = 0, 0
    with file.open("rb") as stream:
        while True:
            block = stream.read(_BLOCK_BYTES)
            pending = decoder.getstate()[0]
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                seen = (pending + block)[: error.start]
                return Failure(
                    consumed - len(pending) + error.start,
                    lines + seen.count(b"\n") + 1,
                    (pending + block)[error.start],
                )
            if "\x00" in text:
                before = text[: text.index("\x00")]
                return Failure(consumed - len(pending) + len(before.encode(codec)), lines + before.count("\n") + 1, 0)
            if not block:
                return None
            lines += text.count("\n")
            consumed += len(block)


def encoding_of_head(head: bytes, declared: str | None = None) -> str:
    """The likely codec from a file's first bytes, for samples; a whole read checks every byte."""
    if declared is not None:
        return text_codec(declared)
    for mark, codec in _BOMS:
        if head.startswith(mark):
            return codec
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(head, final=False)
    except UnicodeDecodeError:
        return "cp949"
    return "utf-8"


def _declared(file: Path, declared: str) -> str:
    name = text_codec(declared)
    with file.open("rb") as stream:
        has_bom = name == "utf-8" and stream.read(3) == codecs.BOM_UTF8
    return _checked(file, "utf-8-sig" if has_bom else name)


def text_codec(declared: str) -> str:
    """Python's name of the declared encoding. Raises DataError ST105 for what is no encoding of a text file."""
    try:
        name = codecs.lookup(declared).name
        "".encode(name)  # a LookupError for codecs between bytes and bytes, or text and text: base64, zlib, rot13
        if name.replace("-", "_") in _NO_FILE_ENCODINGS:
            raise LookupError(name)
    except (LookupError, ValueError) as error:  # ValueError: a NUL in the name
        raise DataError(
            "ST105",
            _("there is no encoding {name}").format(name=repr(declared)),
            place="data.encoding",
            fix=_("for example utf-8, cp949, utf-16; or remove the key"),
        ) from error
    return name


def _checked(file: Path, codec: str) -> str:
    failure = first_failure(file, codec)
    if failure is not None:
        raise _undecodable(file, codec, failure)
    return codec


def _undecodable(file: Path, codec: str, failure: Failure) -> DataError:
    problem = (
        _("NUL at byte {offset}: not text, or UTF-16 without a byte-order mark")
        if failure.byte == 0
        else _("not {codec} at byte {offset} (0x{byte:02x})")
    )
    return DataError(
        "ST105",
        problem.format(codec=codec, offset=failure.offset, byte=failure.byte),
        place=f"{file}:{failure.line}",
        fix=_("save the file as UTF-8, or name its encoding in data.encoding"),
    )
