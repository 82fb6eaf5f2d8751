"""Tiny tokenizers, models and job files for the tests of data: all made here, nothing copied."""

import json
from pathlib import Path
from typing import Any

from stoker.core.io import read_job
from stoker.core.job import Job
from stoker.core.plan import ResolvedModel

WORDS = ["good", "bad", "film", "day", "the", "a", "is", "not", "좋다", "나쁘다", "영화", "오늘", "가", "나", "다"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_wordpiece(folder: Path, words: list[str] | None = None, **config: Any) -> Path:
    """A BERT vocabulary of whole words and of every letter that they have."""
    folder.mkdir(parents=True, exist_ok=True)
    found = WORDS if words is None else words
    letters = sorted({letter for word in found for letter in word})
    vocabulary = [*SPECIAL, *found, *(x for x in letters if x not in found), *(f"##{x}" for x in letters)]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    settings = {"do_lower_case": False, "tokenizer_class": "BertTokenizer", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def write_bpe(folder: Path, template: str | None = CHATML) -> Path:
    """A byte-level BPE trained on a few sentences, with chat marks, as an instruction-tuned model's folder has."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    folder.mkdir(parents=True, exist_ok=True)
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(["what is the answer", "the answer is four", "오늘 날씨가 좋다"] * 3, trainer)
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    backend.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    backend.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def small_model(positions: int = 64, vocab_size: int = 1000, model_type: str = "bert") -> ResolvedModel:
    """A model's config without weights or tokenizer."""
    config = {"model_type": model_type, "max_position_embeddings": positions, "vocab_size": vocab_size}
    return ResolvedModel(name="small", config=config, random_weights=True)


def write_job(folder: Path, data: dict[str, Any], **keys: Any) -> Job:
    """A validated job in `folder` whose tokenizer is `folder/tok`."""
    document = {"model": {"family": "bert"}, "task": "text_classification", "tokenizer": "tok", "data": data, **keys}
    file = folder / "job.yaml"
    file.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return read_job(file)


def write_rows(file: Path, rows: list[dict[str, Any]]) -> Path:
    """A jsonl file."""
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return file
