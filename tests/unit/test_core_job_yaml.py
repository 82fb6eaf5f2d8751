"""YAML of job files: what people mean by numbers and words, the line of every key, and nothing that expands or runs."""

import itertools
import time
from pathlib import Path

import pytest

from stoker.core.errors import JobFileError
from stoker.core.job_yaml import parse_yaml, scalar


def refused(text: str) -> JobFileError:
    with pytest.raises(JobFileError) as caught:
        parse_yaml(text, place="job.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2e-5", 2e-5),
        ("2.0e-5", 2e-5),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("-7", -7),
        ("790_000", 790_000),
        ("no", "no"),
        ("NO", "NO"),
        ("off", "off"),
        ("yes", "yes"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("0o17", "0o17"),
        ("12:30:45", "12:30:45"),
        ("2026-11-30", "2026-11-30"),
        ("1.2.3", "1.2.3"),
        ("욕설", "욕설"),
    ],
)
def test_scalars_are_what_people_mean(text: str, value: object) -> None:
    """2e-5 is a number (YAML 1.1 reads a string), `no` is a word and a label (YAML 1.1 reads False)."""
    found = scalar(text)
    assert found == value
    assert type(found) is type(value)


def test_quotes_keep_a_number_a_text() -> None:
    assert parse_yaml("a: '12'\nb: \"true\"\nc: 'null'", place="x").value == {"a": "12", "b": "true", "c": "null"}


def test_norway_stands_in_a_label_list() -> None:
    assert parse_yaml("labels: [no, yes, off, NO]", place="x").value == {"labels": ["no", "yes", "off", "NO"]}


def test_every_key_knows_its_line() -> None:
    document = parse_yaml("# first\nmodel: a\ntrain:\n  lr: 1\n  epochs: 2\nlist:\n  - x\n  - y\n", place="x")
    assert document.line_of(("model",)) == 2
    assert document.line_of(("train", "epochs")) == 5
    assert document.line_of(("list", 1)) == 8
    assert document.line_of(("train", "missing")) == 3


def test_duplicate_keys_are_named_with_both_lines() -> None:
    error = refused("train:\n  lr: 1\n  epochs: 3\n  lr: 2\n")
    assert error.code == "ST003"
    assert error.place == "job.yaml:4"
    assert "line 2" in error.fix


def test_an_alias_bomb_stops_early() -> None:
    """Nine levels of nine aliases are 387 million nodes; the reader gives up after 100,000."""
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    names = "abcdefghij"
    for before, name in itertools.pairwise(names):
        lines.append(f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]")
    started = time.perf_counter()
    error = refused("\n".join(lines))
    assert error.code == "ST001"
    assert time.perf_counter() - started < 5.0


def test_a_self_reference_stops() -> None:
    assert refused("a: &a [*a]").code == "ST001"


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    for depth in (50, 20_000):
        assert refused("a: " + "[" * depth + "]" * depth).code == "ST001"


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['true']",
        "a: !!python/name:os.system ''",
        "a: !custom 1",
        "base: &b {x: 1}\na:\n  <<: *b\n",
        "? [1, 2]\n: x\n",
        "a: 'unclosed",
        "a: b: c",
        "\ta: 1",
        "a: [1, 2",
        "a: \x07",
        "a: 1\n---\nb: 2\n",
    ],
)
def test_what_a_job_file_may_not_hold(text: str) -> None:
    error = refused(text)
    assert error.code == "ST001"
    assert error.place.startswith("job.yaml")
    assert error.fix


@pytest.mark.parametrize("text", ["", "   \n", "# only a comment\n"])
def test_an_empty_file_points_to_init(text: str) -> None:
    error = refused(text)
    assert error.code == "ST002"
    assert "stoker init" in error.fix


def test_a_huge_file_is_refused_before_parsing() -> None:
    assert refused("a: " + "x" * 2_000_001).code == "ST001"


def test_a_huge_number_stays_a_text() -> None:
    """Converting a million digits would take minutes: longer than 400 characters is no number."""
    assert isinstance(parse_yaml("a: " + "9" * 1_000_000, place="x").value["a"], str)


def test_the_recipes_of_the_repository_parse() -> None:
    files = sorted((Path(__file__).resolve().parents[2] / "recipes").glob("*.yaml"))
    assert files
    for file in files:
        assert parse_yaml(file.read_text(encoding="utf-8"), place=str(file)).value
