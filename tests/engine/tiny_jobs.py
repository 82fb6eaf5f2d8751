"""Tiny jobs that train in seconds on a CPU: a two-word sentiment task, a counting language, digits as images."""

import csv
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from stoker.core.io import read_job
from stoker.core.plan import Plan
from stoker.planner.gather import plan_job

_FILL = ("the", "a", "film", "book", "was", "very", "it", "and", "day", "we", "saw")
_MOODS: Mapping[str, Sequence[str]] = {
    "good": ("fine", "great", "nice", "happy"),
    "bad": ("awful", "poor", "sad", "angry"),
}
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY = (*SPECIAL, *_FILL, *_MOODS["good"], *_MOODS["bad"])
ELECTRA = {
    "family": "electra", "vocab_size": len(VOCABULARY), "hidden_size": 32, "embedding_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64,
}  # fmt: skip
LLAMA = {
    "family": "llama", "vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64, "initializer_range": 0.1,
}  # fmt: skip
VIT = {
    "family": "vit", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "image_size": 16, "patch_size": 4, "initializer_range": 0.2,
}  # fmt: skip


def write_sentiment(folder: Path, rows: int = 160, seed: int = 0) -> Path:
    """train.csv (text, label, good, film) and a WordPiece tokenizer in `folder`/tok."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    with (folder / "train.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "label", "good", "film"])
        for _row in range(rows):
            mood = draw.choice(("good", "bad"))
            words = [draw.choice(_FILL) for _word in range(draw.randint(3, 14))]
            words.insert(draw.randrange(len(words)), draw.choice(_MOODS[mood]))
            writer.writerow([" ".join(words), mood, int(mood == "good"), int("film" in words)])
    tokenizer = folder / "tok"
    tokenizer.mkdir(exist_ok=True)
    (tokenizer / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    config = {"tokenizer_class": "BertTokenizer", **{f"{name}_token": text for name, text in names.items()}}
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def write_sums(folder: Path, rows: int = 200, seed: int = 0) -> Path:
    """sums.jsonl (question, answer: one digit plus one digit, below ten) and a word-level tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    with (folder / "sums.jsonl").open("w", encoding="utf-8") as stream:
        for _row in range(rows):
            a = draw.randint(0, 9)
            b = draw.randint(0, 9 - a)
            extra = " plus 0" * draw.randint(0, 2)
            stream.write(json.dumps({"question": f"{a} plus {b}{extra} is", "answer": str(a + b)}) + "\n")
    words = ("<pad>", "<unk>", "</s>", *map(str, range(10)), "plus", "is")
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = folder / "tok"
    tokenizer.mkdir(exist_ok=True)
    backend.save(str(tokenizer / "tokenizer.json"))
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    (tokenizer / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}), encoding="utf-8"
    )
    return folder


def write_digits(folder: Path, count: int = 240) -> Path:
    """scikit-learn's digits 0, 1 and 2 as png files in class folders."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    chosen = [i for i in range(len(digits.target)) if digits.target[i] < 3][:count]
    for i in chosen:
        target = folder / "images" / f"digit{digits.target[i]}"
        target.mkdir(parents=True, exist_ok=True)
        pixels = (digits.images[i] * 15.9).astype(np.uint8)
        Image.fromarray(pixels).resize((16, 16)).save(target / f"{i}.png")
    return folder


def sentiment_job(folder: Path, **sections: Any) -> dict[str, Any]:
    """A multi-label job over `write_sentiment`; keyword arguments replace keys inside sections."""
    job: dict[str, Any] = {
        "model": dict(ELECTRA),
        "tokenizer": "tok",
        "task": "text_classification",
        "problem": "multi_label",
        "data": {"train": "train.csv", "eval_frac": 0.2, "text": "text", "labels": ["good", "film"]},
        "train": {"epochs": 2.0, "global_batch_size": 16, "lr": 3e-3, "seq_len": 32},
        "run": {"micro_batch_size": 4},
    }
    return merged(job, sections)


def sums_job(folder: Path, **sections: Any) -> dict[str, Any]:
    """A causal-LM job over `write_sums`."""
    job: dict[str, Any] = {
        "model": dict(LLAMA),
        "tokenizer": "tok",
        "task": "causal_lm",
        "data": {"train": "sums.jsonl", "eval_frac": 0.2, "text": {"prompt": "question", "response": "answer"}},
        "train": {"epochs": 2.0, "global_batch_size": 16, "lr": 3e-3, "seq_len": 32},
        "run": {"micro_batch_size": 8},
    }
    return merged(job, sections)


def digits_job(folder: Path, **sections: Any) -> dict[str, Any]:
    """An image-classification job over `write_digits`."""
    job: dict[str, Any] = {
        "model": dict(VIT),
        "task": "image_classification",
        "data": {"train": "images", "eval_frac": 0.25},
        "train": {"epochs": 6.0, "global_batch_size": 16, "lr": 3e-3},
        "run": {"micro_batch_size": 16},
    }
    return merged(job, sections)


def merged(job: dict[str, Any], sections: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in sections.items():
        both = isinstance(value, dict) and isinstance(job.get(name), dict) and name != "model"
        job[name] = {**job[name], **value} if both else value
    return job


def plan_here(folder: Path, job: Mapping[str, Any], name: str = "job.yaml") -> Plan:
    """The plan of `job`, written to `folder`, for this machine's CPU."""
    file = folder / name
    file.write_text(yaml.safe_dump({**job, "hardware": {"here": True}}, sort_keys=False), encoding="utf-8")
    return plan_job(read_job(file))
