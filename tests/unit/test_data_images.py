"""Images: class folders and tables, every one decoded once, the broken one named."""

from pathlib import Path
from typing import Any

import pytest
from data_samples import small_model, write_job, write_rows

from stoker.core.errors import DataError
from stoker.data.image_files import check_images
from stoker.data.images import ImageSplit
from stoker.data.prepare import prepare_data
from stoker.data.prepare_images import prediction_images
from stoker.data.prepared import PreparedData
from stoker.data.profile import quick_profile

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_images(folder: Path, per_class: int = 4, classes: tuple[str, ...] = ("고양이", "dog")) -> Path:
    for c, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(per_class):
            image = Image.new("RGB", (16, 16), (10 * i, 100 * c, 50))
            image.save(folder / name / f"{i}.{'png' if i % 2 else 'jpg'}")
    return folder


def prepared(folder: Path, data: dict[str, Any], **keys: Any) -> PreparedData:
    return prepare_data(write_job(folder, data, task="image_classification", tokenizer=None, **keys), small_model())


def test_class_folders(tmp_path: Path) -> None:
    write_images(tmp_path / "img")
    data = prepared(tmp_path, {"train": "img", "eval_frac": 0.25})
    assert data.labels is not None and data.labels.names == ("dog", "고양이")
    assert isinstance(data.train, ImageSplit) and data.eval is not None
    assert (data.train.num_samples, data.eval.num_samples) == (6, 2)
    assert data.report.images_checked == 8 and data.report.leaks == {"train-eval": 0}
    for i in range(6):
        assert data.labels.names[data.train.target(i)] == Path(data.train.path(i)).parent.name  # type: ignore[index]
    profile, notes = quick_profile(
        write_job(tmp_path, {"train": "img", "eval_frac": 0.25}, task="image_classification"), small_model()
    )
    assert (profile.num_samples, profile.num_eval_samples, profile.num_labels, notes) == (6, 2, 2, [])


def test_planning_counts_images_without_opening_them(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "img" / name).mkdir(parents=True)
        for i in range(5):
            (tmp_path / "img" / name / f"{i}.jpg").write_bytes(b"never opened")
    profile, _notes = quick_profile(write_job(tmp_path, {"train": "img"}, task="image_classification"), small_model())
    assert (profile.num_samples, profile.num_labels, profile.bytes_per_sample) == (10, 2, 12.0)


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "png"])
def test_an_image_that_does_not_decode_is_named(tmp_path: Path, damage: str) -> None:
    file = write_images(tmp_path / "img") / "dog" / ("1.png" if damage == "png" else "2.jpg")
    raw = file.read_bytes()
    file.write_bytes({"cut": raw[: len(raw) * 2 // 3], "empty": b"", "text": b"<html>", "png": raw[:-30]}[damage])
    with pytest.raises(DataError) as caught:
        prepared(tmp_path, {"train": "img"})
    assert (caught.value.code, caught.value.place) == ("ST160", str(file))


def test_without_pillow_the_first_bytes_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.data.image_files.pillow", lambda: None)
    monkeypatch.setattr("stoker.data.prepare_images.pillow", lambda: None)
    file = write_images(tmp_path / "img") / "dog" / "0.jpg"
    assert "ST162" in {n.code for n in prepared(tmp_path, {"train": "img"}).notices}
    file.write_bytes(b"<html>")
    with pytest.raises(DataError, match="ST160"):
        check_images([file])


def test_a_table_of_paths_with_several_labels(tmp_path: Path) -> None:
    write_images(tmp_path / "img")
    rows = [{"file": f"img/dog/{i}.{'png' if i % 2 else 'jpg'}", "a": i % 2, "b": 1 - i % 2} for i in range(4)]
    write_rows(tmp_path / "t.jsonl", [*rows, {"file": None, "a": 1, "b": 0}])
    data = prepared(tmp_path, {"train": "t.jsonl", "image": "file", "labels": ["a", "b"]}, problem="multi_label")
    assert [data.train.target(i) for i in range(2)] == [[0, 1], [1, 0]]
    assert data.report.splits[0].dropped == {"empty_text": 1}
    with pytest.raises(DataError, match="ST161"):
        prepared(tmp_path, {"train": "t.jsonl"})
    write_rows(tmp_path / "t.jsonl", [{"file": "img/dog/none.jpg", "a": 1, "b": 0}, rows[0]])
    with pytest.raises(DataError, match="ST101"):
        prepared(tmp_path, {"train": "t.jsonl", "image": "file", "labels": ["a", "b"]}, problem="multi_label")


def test_equal_images_are_seen_as_leaks(tmp_path: Path) -> None:
    write_images(tmp_path / "train")
    write_images(tmp_path / "valid", per_class=1)
    data = prepared(tmp_path, {"train": "train", "eval": "valid"})
    assert data.report.leaks == {"train-eval": 2} and "ST135" in {n.code for n in data.notices}


def test_layouts_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "flat").mkdir()
    with pytest.raises(DataError, match="ST161"):
        prepared(tmp_path, {"train": "flat"})
    (tmp_path / "flat" / "a").mkdir()
    with pytest.raises(DataError, match="ST104"):
        prepared(tmp_path, {"train": "flat"})
    write_images(tmp_path / "one", classes=("only",))
    with pytest.raises(DataError, match="ST122"):
        prepared(tmp_path, {"train": "one"})


def test_prediction_takes_a_folder_or_one_file(tmp_path: Path) -> None:
    write_images(tmp_path / "img")
    job = write_job(tmp_path, {"train": "img"}, task="image_classification")
    assert prediction_images(job, tmp_path / "img").num_samples == 8
    assert prediction_images(job, tmp_path / "img" / "dog" / "0.jpg").num_samples == 1
