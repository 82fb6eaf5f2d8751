"""Tables: the same rows from every encoding and format, and every broken or unsafe file refused with its place."""

import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stoker.core.errors import DataError
from stoker.data import delimited
from stoker.data.table import Table, read_table

TEXT = "text,label\n똠얌꿍은 맛있다,1\n좋다,0\n안녕,1\n"
ROWS = (["똠얌꿍은 맛있다", "좋다", "안녕"], ["1", "0", "1"])
READ_IT = """
import sys
from pathlib import Path
from stoker.data.table import read_table
table = read_table(Path(sys.argv[1]), ("text", "label"))
sys.stdout.buffer.write(repr((table.names, table.columns)).encode("utf-8"))
"""


def read(file: Path, *wanted: str) -> Table:
    return read_table(file, wanted or ("text", "label"))


def refusal(file: Path, *wanted: str) -> DataError:
    with pytest.raises(DataError) as caught:
        read(file, *wanted)
    return caught.value


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "cp949", "utf-16", "utf-16-le", "utf-32"])
def test_the_same_rows_from_every_encoding(tmp_path: Path, codec: str) -> None:
    """Case 57; cp949 and not euc-kr, which has no 똠; the BOM does not hide the first column."""
    raw = TEXT.encode(codec)
    file = tmp_path / "a.csv"
    file.write_bytes(b"\xff\xfe" + raw if codec == "utf-16-le" else raw)
    table = read(file)
    assert table.names == ("text", "label")
    assert (table.columns["text"], table.columns["label"]) == ROWS
    assert table.row_numbers == [2, 3, 4]


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "cp949", "utf-16"])
def test_the_machines_locale_plays_no_part(tmp_path: Path, codec: str) -> None:
    """In a C locale without UTF-8 mode; a call that falls back to the locale's encoding is an error."""
    file = tmp_path / "a.csv"
    file.write_bytes(TEXT.encode(codec))
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "cp949"}
    command = [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-c", READ_IT, str(file)]
    done = subprocess.run(command, capture_output=True, env=env, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    names, columns = eval(done.stdout.decode("utf-8"))
    assert (names, columns["text"], columns["label"]) == (("text", "label"), *ROWS)


def test_utf8_hangul_is_not_taken_for_cp949(tmp_path: Path) -> None:
    """The trap of case 57: these bytes decode as cp949 too, to garbage."""
    assert "좋다".encode().decode("cp949", errors="replace") != "좋다"
    file = tmp_path / "a.csv"
    file.write_bytes("text,label\n좋다,1\n".encode())
    assert read(file).columns["text"] == ["좋다"]


def test_undecodable_bytes_are_named_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    good = "text,label\n좋다,1\n".encode()
    file.write_bytes(good + b"bad \xff\xff,1\n")
    error = refusal(file)
    assert error.code == "ST105"
    assert error.place == f"{file}:3"
    assert str(len(good) + 4) in error.problem and "0xff" in error.problem


def test_a_declared_encoding_is_taken_at_its_word(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes("text,label\ncafé,1\n".encode("latin-1"))
    assert read_table(file, ("text",), encoding="latin-1").columns["text"] == ["café"]
    with pytest.raises(DataError, match="ST105"):
        read_table(file, ("text",), encoding="utf-8")
    with pytest.raises(DataError, match="ST105"):
        read_table(file, ("text",), encoding="no-such-code")


def test_utf16_without_a_mark_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes("text,label\nabc,1\n".encode("utf-16-le"))
    error = refusal(file)
    assert error.code == "ST105" and "NUL" in error.problem


@pytest.mark.parametrize(
    "name", ["nope", "", "a\0b", "rot13", "base64", "zlib", "undefined", "punycode", "unicode_escape"]
)
def test_only_encodings_of_text_files_may_be_declared(tmp_path: Path, name: str) -> None:
    """Python's codecs also hold transforms and spellings of literals: they are no encoding of a file."""
    (tmp_path / "a.csv").write_text(TEXT, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_table(tmp_path / "a.csv", ("text",), encoding=name)
    assert caught.value.code == "ST105" and caught.value.place == "data.encoding"


def test_quoted_newlines_and_tsv(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('text,label\n"one\ntwo, ""three""",1\nfour,0\n', encoding="utf-8")
    table = read(file)
    assert table.columns["text"] == ['one\ntwo, "three"', "four"]
    assert table.row_numbers == [2, 4]
    tsv = tmp_path / "a.tsv"
    tsv.write_text('text\tlabel\n"never closed\t1\nsaid "so"\t0\n', encoding="utf-8")
    stray = read(tsv)
    assert stray.columns["text"] == ['"never closed', 'said "so"'] and not stray.quoted


@pytest.mark.parametrize(
    ("name", "text", "code", "line"),
    [
        ("a.csv", "text,label\na,1\nb,1,2\n", "ST106", 3),
        ("a.csv", 'text,label\na,1\n"b,1\n', "ST106", 3),
        ("a.csv", "text,text,label\na,b,1\n", "ST112", 1),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": NaN, "label": 1}\n', "ST107", 2),
        ("a.jsonl", '{"text": "a", "label": 1, "text": "b"}\n', "ST107", 1),
        ("a.jsonl", '{"text": "a", "label": 1}\n[1]\n', "ST107", 2),
        ("a.jsonl", '\n{"text": ' + "[" * 100_000 + "}\n", "ST107", 2),
        ("a.jsonl", '{"text": "a", "label": ' + "9" * 10_000 + "}\n", "ST107", 1),
        ("a.json", "[1]", "ST107", 1),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, name: str, text: str, code: str, line: int) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    error = refusal(file)
    assert (error.code, error.place) == (code, f"{file}:{line}")


@pytest.mark.parametrize("text", ["", "text,label\n", "\n\n"])
def test_an_empty_file_is_no_data(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(text, encoding="utf-8")
    assert refusal(file).code == "ST104"


def test_long_lines_are_capped_while_streaming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "MAX_LINE_CHARS", 1000)
    monkeypatch.setattr(delimited, "MAX_FIELD_CHARS", 100)
    file = tmp_path / "a.csv"
    file.write_text("text,label\nok,1\n" + "x" * 5000, encoding="utf-8")
    error = refusal(file)
    assert (error.code, error.place) == ("ST109", f"{file}:3")
    file.write_text("text,label\nok,1\n" + "x" * 500 + ",1\n", encoding="utf-8")
    assert (refusal(file).code, refusal(file).place) == ("ST109", f"{file}:3")


def test_a_missing_column_names_those_there(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("comment,label\na,1\n", encoding="utf-8")
    error = refusal(file, "coment")
    assert error.code == "ST110" and "comment, label" in error.fix and "did you mean comment?" in error.fix
    file.write_text("text;label\na;1\n", encoding="utf-8")
    assert "separator" in refusal(file, "text").fix


def test_unsafe_paths_are_refused(tmp_path: Path) -> None:
    """A FIFO would hang, /proc and devices never end, a loop of links leads nowhere, a folder is no table."""
    os.mkfifo(tmp_path / "pipe.csv")
    assert refusal(tmp_path / "pipe.csv").code == "ST102"
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    assert refusal(tmp_path / "loop.csv").code == "ST102"
    (tmp_path / "environ.csv").symlink_to("/proc/self/environ")
    assert refusal(tmp_path / "environ.csv").code == "ST102"
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    assert refusal(tmp_path / "zero.csv").code == "ST102"
    (tmp_path / "folder.csv").mkdir()
    assert refusal(tmp_path / "folder.csv").code == "ST102"


@pytest.mark.parametrize("name", ["a\0b.csv", "x" * 5000 + ".csv", "~no-such-user/a.csv", "~no-such-user/a"])
def test_names_that_no_file_can_have_are_refused(tmp_path: Path, name: str) -> None:
    from stoker.core.job import DataSpec, Job
    from stoker.data.files import resolve_path

    job = Job(model="m", task="causal_lm", data=DataSpec(train=name), base_dir=str(tmp_path))
    assert refusal(resolve_path(job, name)).code in ("ST101", "ST102")


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(TEXT, encoding="utf-8")
    error = refusal(tmp_path / "trian.csv")
    assert error.code == "ST101" and "train.csv" in error.fix
    (tmp_path / "train.xlsx").write_bytes(b"PK")
    assert refusal(tmp_path / "train.xlsx").code == "ST103"


def test_a_decomposed_file_name_and_header_are_found(tmp_path: Path) -> None:
    """Case 59: macOS stores names decomposed."""
    from stoker.data.files import find_existing

    stored = tmp_path / unicodedata.normalize("NFD", "자료") / unicodedata.normalize("NFD", "댓글.csv")
    stored.parent.mkdir()
    stored.write_text(unicodedata.normalize("NFD", "본문,라벨\n") + "a,1\n", encoding="utf-8")
    found = find_existing(tmp_path / "자료" / "댓글.csv")
    assert found == stored
    assert read(found, "본문", "라벨").columns["본문"] == ["a"]


def test_parquet_jsonl_and_json_give_the_same_columns(tmp_path: Path) -> None:
    rows = [{"text": "좋다", "label": 1}, {"text": None, "label": 0}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"text": "좋다", "label": 1}\n{"label": 0}\n', encoding="utf-8")
    tables = [read(tmp_path / name) for name in ("a.parquet", "a.json", "a.jsonl")]
    assert all(t.columns == {"text": ["좋다", None], "label": [1, 0]} for t in tables)
    assert all(t.row_numbers == [1, 2] for t in tables)


def test_a_parquet_bomb_is_refused_without_unpacking(tmp_path: Path) -> None:
    """A few kB that decode to 40 GB: one long text, a dictionary entry repeated 40,000 times."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 40_000, pa.int32()), pa.array(["x" * 1_000_000]))
    file = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"text": column}), file, compression="zstd")
    assert file.stat().st_size < 200_000
    assert refusal(file, "text").code == "ST108"


def test_a_torn_parquet_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a"] * 1000}), file)
    file.write_bytes(file.read_bytes()[:-20])
    assert refusal(file, "text").code == "ST108"
    file.write_bytes(b"not parquet at all")
    assert refusal(file, "text").code == "ST108"


@pytest.mark.parametrize("escape", [r"\ud800", r"\udc00 x", r"\ud83d\ud83d\ude00"])
def test_half_a_character_is_no_text(tmp_path: Path, escape: str) -> None:
    """JSON can spell lone surrogates, which no tokenizer and no UTF-8 file takes."""
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "\\ud83d\\ude00 ok"}\n{"text": "' + escape + '"}\n', encoding="utf-8")
    error = refusal(file, "text")
    assert error.code == "ST107" and error.place.endswith(":2")
    file.write_text('{"text": "\\ud83d\\ude00 ok"}\n', encoding="utf-8")
    assert read(file, "text").columns["text"] == ["\U0001f600 ok"]
