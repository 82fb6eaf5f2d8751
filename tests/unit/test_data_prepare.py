"""prepare_data on text: what is kept, dropped, refused and noticed, and the tokens that come out."""

import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from data_samples import small_model, write_job, write_rows, write_wordpiece

from stoker.core.errors import DataError
from stoker.core.estimate import Source
from stoker.core.job import Job
from stoker.data.encoded import EncodedSplit
from stoker.data.prepare import prepare_data
from stoker.data.prepared import PreparedData

CLASSES: dict[str, Any] = {"train": "train.jsonl", "text": "text", "labels": "label"}


def job_of(folder: Path, rows: list[dict[str, Any]], data: dict[str, Any] | None = None, **keys: Any) -> Job:
    if not (folder / "tok").exists():
        write_wordpiece(folder / "tok")
    write_rows(folder / "train.jsonl", rows)
    return write_job(folder, data or CLASSES, **keys)


def prepared(folder: Path, rows: list[dict[str, Any]], data: dict[str, Any] | None = None, **keys: Any) -> PreparedData:
    return prepare_data(job_of(folder, rows, data, **keys), small_model())


def refused(folder: Path, rows: list[dict[str, Any]], data: dict[str, Any] | None = None, **keys: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        prepared(folder, rows, data, **keys)
    return caught.value


def codes(data: PreparedData) -> set[str]:
    return {notice.code for notice in data.notices}


def train(data: PreparedData) -> EncodedSplit:
    assert isinstance(data.train, EncodedSplit)
    return data.train


TWO = [{"text": "good film", "label": "pos"}, {"text": "bad day", "label": "neg"}]


def test_tokens_targets_and_rows(tmp_path: Path) -> None:
    data = prepared(tmp_path, [TWO[0], {"text": " ", "label": "pos"}, {"label": "neg"}, {"text": "a"}, TWO[1]])
    assert data.tokenizer is not None and data.labels is not None
    assert [data.tokenizer.decode(list(train(data).token_ids(i))) for i in (0, 1)] == [
        "[CLS] good film [SEP]",
        "[CLS] bad day [SEP]",
    ]
    assert data.labels.names == ("neg", "pos")
    assert [train(data).target(i) for i in (0, 1)] == [1, 0]
    assert [train(data).row_number(i) for i in (0, 1)] == [1, 5]
    assert list(train(data).lengths) == [4, 4] and train(data).num_tokens == 8
    assert data.report.splits[0].dropped == {"empty_text": 1, "missing_text": 1, "missing_label": 1}
    assert "ST131" in codes(data)
    assert data.profile.source is Source.MEASURED and data.profile.num_samples == 2


def test_multi_label_rows(tmp_path: Path) -> None:
    rows = [{"text": "good", "a": 1, "b": 0}, {"text": "bad", "a": "0", "b": 1.0}]
    multi = {"train": "train.jsonl", "text": "text", "labels": ["a", "b"]}
    data = prepared(tmp_path, rows, multi, problem="multi_label")
    assert [train(data).target(i) for i in (0, 1)] == [[1, 0], [0, 1]]
    assert data.profile.label_counts == {"a": 1, "b": 1}
    error = refused(tmp_path, [*rows, {"text": "c", "a": 3, "b": 0}], multi, problem="multi_label")
    assert error.code == "ST120" and error.place.endswith("train.jsonl:3 a")
    assert refused(tmp_path, [rows[0], rows[0]], multi, problem="multi_label").code == "ST122"


def test_bad_labels(tmp_path: Path) -> None:
    listed = {**CLASSES, "label_names": ["positive", "negative"]}
    rows = [{"text": "a", "label": "positive"}, {"text": "b", "label": "negativ"}]
    error = refused(tmp_path, rows, listed)
    assert error.code == "ST121" and error.place.endswith(":2") and "did you mean negative?" in error.fix
    assert refused(tmp_path, [TWO[0], TWO[0]]).code == "ST122"
    split = {**CLASSES, "split": "part"}
    rows = [{**row, "part": "train"} for row in TWO] + [{"text": "day", "label": "new", "part": "dev"}]
    assert refused(tmp_path, rows, split).code == "ST125"


def test_absent_labels_are_noticed(tmp_path: Path) -> None:
    """Case 61: a label that validation lacks is listed, never averaged silently."""
    rows = [{**row, "part": "train"} for row in TWO] + [{"text": "film", "label": "pos", "part": "validation"}]
    data = prepared(tmp_path, rows, {**CLASSES, "split": "part", "label_names": ["neg", "pos", "unseen"]})
    assert {"ST123", "ST124"} <= codes(data)
    assert data.report.split("eval").label_counts == {"neg": 0, "pos": 1, "unseen": 0}  # type: ignore[union-attr]


def test_split_column_spellings(tmp_path: Path) -> None:
    rows = [
        {**TWO[0], "part": "Train"},
        {**TWO[1], "part": "training"},
        {**TWO[0], "part": "dev"},
        {**TWO[1], "part": "TEST"},
    ]
    data = prepared(tmp_path, rows, {**CLASSES, "split": "part"})
    assert {name: split.num_samples for name, split in data.splits.items()} == {"train": 2, "eval": 1, "test": 1}
    assert data.report.leaks == {"train-eval": 1, "train-test": 1, "eval-test": 0} and "ST135" in codes(data)
    error = refused(tmp_path, [*rows, {**TWO[0], "part": "holdout"}], {**CLASSES, "split": "part"})
    assert error.code == "ST132" and error.place.endswith(":5 part")
    assert refused(tmp_path, [{**row, "part": "test"} for row in TWO], {**CLASSES, "split": "part"}).code == "ST133"


def test_eval_frac_leaks_nothing(tmp_path: Path) -> None:
    rows = [{"text": f"good {'a ' * (i % 40)}", "label": str(i % 2)} for i in range(200)]
    data = prepared(tmp_path, rows, {**CLASSES, "eval_frac": 0.2})
    assert data.eval is not None and data.eval.num_samples == pytest.approx(40, abs=6)
    assert data.report.leaks == {"train-eval": 0}


def test_repeats_and_contradictions(tmp_path: Path) -> None:
    rows = [*TWO, {"text": "Good  film", "label": "neg"}]
    data = prepared(tmp_path, rows)
    assert {"ST134", "ST136"} <= codes(data)
    assert (data.report.splits[0].duplicates, data.report.splits[0].conflicts) == (1, 1)
    data = prepared(tmp_path, rows, {**CLASSES, "drop_duplicates": True})
    assert data.train.num_samples == 2 and data.report.splits[0].dropped == {"duplicate": 1}


def test_decomposed_text_costs_no_more_tokens(tmp_path: Path) -> None:
    """Case 59: equal token counts after composing, with one notice; data.normalise: none keeps the text."""
    rows = [{"text": "오늘 영화 좋다", "label": "pos"}, {"text": "나쁘다", "label": "neg"}]
    decomposed = [{**row, "text": unicodedata.normalize("NFD", row["text"])} for row in rows]
    composed, twin = prepared(tmp_path, rows), prepared(tmp_path, decomposed)
    assert list(train(composed).lengths) == list(train(twin).lengths)
    assert composed.profile.lengths == twin.profile.lengths
    assert "ST150" not in codes(composed) and sum(n.code == "ST150" for n in twin.notices) == 1
    assert refused(tmp_path, decomposed, {**CLASSES, "normalise": "none"}).code == "ST142"


def test_nothing_left(tmp_path: Path) -> None:
    assert refused(tmp_path, [{"text": "", "label": "a"}, {"text": None, "label": "b"}]).code == "ST130"


def test_a_number_where_text_belongs(tmp_path: Path) -> None:
    error = refused(tmp_path, [*TWO, {"text": 5, "label": "pos"}])
    assert error.code == "ST111" and error.place.endswith("train.jsonl:3 text")


def test_long_texts_are_cut_and_counted(tmp_path: Path) -> None:
    rows = [*TWO, {"text": "good " * 100, "label": "pos"}]
    data = prepared(tmp_path, rows, train={"seq_len": 16})
    assert list(train(data).lengths) == [4, 4, 16]
    assert data.report.splits[0].tokens is not None
    assert data.report.splits[0].tokens.maximum == 102 and "ST145" in codes(data)
    assert data.profile.lengths.maximum == 102  # planning cuts at seq_len itself
    assert [int(x) for x in train(data).token_ids(2)][-1] == 3  # [SEP] stays
    error = refused(tmp_path, rows, train={"seq_len": 65})
    assert error.code == "ST144" and "64" in error.fix


def test_a_foreign_vocabulary_is_refused(tmp_path: Path) -> None:
    """The trap of an all-unknown vocabulary, and one larger than the model's embedding."""
    write_wordpiece(tmp_path / "tok", words=["x"])
    assert refused(tmp_path, TWO).code == "ST142"
    write_wordpiece(tmp_path / "tok")
    with pytest.raises(DataError, match="ST143"):
        prepare_data(job_of(tmp_path, TWO), small_model(vocab_size=10))


def test_no_tokenizer(tmp_path: Path) -> None:
    write_rows(tmp_path / "train.jsonl", TWO)
    assert refused(tmp_path, TWO, tokenizer=None).code == "ST140"
    (tmp_path / "tok" / "vocab.txt").write_bytes(b"\xff\xfe")
    assert refused(tmp_path, TWO).code == "ST141"


def test_pairs_have_segments(tmp_path: Path) -> None:
    rows = [{"text": "good", "other": "bad day", "label": 0}, {"text": "the film", "other": "a", "label": 1}]
    data = prepared(tmp_path, rows, {**CLASSES, "text_pair": "other"})
    assert train(data).has_type_ids and list(train(data).type_ids(0)) == [0, 0, 0, 1, 1, 1]


def test_workers_after_tokenising_neither_hang_nor_warn(tmp_path: Path) -> None:
    """Case 31: tokenise in the parent, then two forked workers that tokenise: within 30 s and without a warning."""
    job_of(tmp_path, TWO * 50)
    code = f"""
import multiprocessing, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from data_samples import small_model
from stoker.core.io import read_job
from stoker.data.prepare import prepare_data
data = prepare_data(read_job(Path({str(tmp_path)!r}) / "job.yaml"), small_model())
def count(i):
    return sum(length for _encoding, length in data.tokenizer.encode(["good film"] * 64, seq_len=8))
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(count, range(8)) == [256] * 8
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"parallelism" not in done.stderr


def test_planning_data_never_loads_torch(tmp_path: Path) -> None:
    job_of(tmp_path, TWO)
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from data_samples import small_model
from stoker.core.io import read_job
from stoker.data.prepare import prepare_data
prepare_data(read_job({str(tmp_path / "job.yaml")!r}), small_model())
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
