"""`predict(run, file)`: a trained model applied to new rows, with the thresholds that its validation data gave.

Classification answers probabilities and labels (threshold a label, or the likeliest class); a language model continues
the prompt greedily and, where the answer's column is there, tells its perplexity. Order and number of rows stay.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stoker.core.codec import decode
from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.core.job import DataSpec, TextFields
from stoker.data.causal_text import causal_columns, causal_sample
from stoker.data.files import find_existing
from stoker.data.hangul import compose
from stoker.data.table import Table, read_table
from stoker.data.tokenizer import TextTokenizer, load_tokenizer
from stoker.engine.export import MODEL_DIR, NOTES_NAME
from stoker.engine.trained import TrainedModel, load_trained

_BATCH_TOKENS = 8192  # computed tokens of one forward


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One row's answer. `row`: its line in the file (an image: its path). Fields that a task lacks are None."""

    row: int | str
    labels: tuple[str, ...] | None = None
    probabilities: Mapping[str, float] | None = None
    generated: str | None = None
    perplexity: float | None = None


def predict(
    run_dir: Path,
    file: Path,
    *,
    max_new_tokens: int = 128,
    phase: Callable[[int, int], None] = lambda done, total: None,
) -> list[Prediction]:
    """Predictions for every row of `file` (csv, tsv, jsonl, parquet, an image or a folder of images), in order.

    `run_dir`: a run folder or its model folder. Raises RunError ST440, ST441; DataError for the file.
    """
    folder = model_folder(run_dir)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    trained = load_trained(folder, device)
    path = find_existing(file)
    if trained.notes["task"] == "image_classification":
        from stoker.engine.predict_images import predict_images

        return predict_images(trained, path, phase)
    tokenizer = load_tokenizer(folder)
    if trained.notes["task"] == "causal_lm":
        return list(_continue_prompts(trained, tokenizer, path, max_new_tokens, phase))
    return _classify(trained, tokenizer, path, phase)


def model_folder(run_dir: Path) -> Path:
    """The model folder of a run, or `run_dir` itself where it is one. Raises RunError ST440."""
    for folder in (run_dir / MODEL_DIR, run_dir):
        if (folder / NOTES_NAME).is_file():
            return folder
    raise RunError(
        "ST440",
        _("there is no trained model here"),
        place=str(run_dir),
        fix=_("name the folder of a finished `stoker run`"),
    )


def label_probabilities(trained: TrainedModel, logits: torch.Tensor) -> torch.Tensor:
    """Probabilities [B, labels] of logits: sigmoid for multi_label, softmax for classes."""
    logits = logits.float()
    return logits.sigmoid() if trained.notes["problem"] == "multi_label" else logits.softmax(dim=-1)


def decide(trained: TrainedModel, row: int | str, probabilities: Sequence[float]) -> Prediction:
    """The labels whose probability reaches their threshold, or the likeliest class."""
    labels: Sequence[str] = trained.notes["labels"]
    if trained.notes["problem"] == "multi_label":
        limits = trained.notes["thresholds"]
        chosen = tuple(n for n, p, t in zip(labels, probabilities, limits, strict=True) if p >= t)
    else:
        chosen = (labels[max(range(len(labels)), key=lambda i: probabilities[i])],)
    return Prediction(row=row, labels=chosen, probabilities=dict(zip(labels, probabilities, strict=True)))


def _classify(
    trained: TrainedModel, tokenizer: TextTokenizer, path: Path, phase: Callable[[int, int], None]
) -> list[Prediction]:
    columns = trained.notes["columns"]
    wanted = [name for name in (columns["text"], columns["text_pair"]) if name]
    table = read_table(path, wanted, encoding=trained.notes["encoding"])
    texts = [_text(value, trained) for value in table.columns[wanted[0]]]
    pairs = [_text(value, trained) for value in table.columns[wanted[1]]] if len(wanted) > 1 else None
    encoded = [encoding for encoding, _whole in tokenizer.encode(texts, pairs, seq_len=trained.notes["max_length"])]
    results: list[Prediction | None] = [None] * len(encoded)
    done = 0
    for rows in _batches([len(e.ids) for e in encoded]):
        inputs = _padded([encoded[i] for i in rows], tokenizer.pad_id, trained)
        with torch.inference_mode():
            probabilities = label_probabilities(trained, trained.logits(inputs)).cpu()
        for i, values in zip(rows, probabilities.tolist(), strict=True):
            results[i] = decide(trained, table.row_numbers[i], values)
        done += len(rows)
        phase(done, len(encoded))
    return [result for result in results if result is not None]


def _text(value: Any, trained: TrainedModel) -> str:
    text = "" if value is None else str(value)
    return compose(text) if trained.notes["normalise"] == "nfc" else text


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Positions in batches of alike length, at most `_BATCH_TOKENS` computed tokens each."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _padded(encodings: Sequence[Any], pad_id: int, trained: TrainedModel) -> dict[str, torch.Tensor]:
    width = max(len(e.ids) for e in encodings)
    ids = torch.full((len(encodings), width), pad_id)
    mask = torch.zeros((len(encodings), width), dtype=torch.int64)
    types = torch.zeros((len(encodings), width), dtype=torch.int64)
    for row, encoding in enumerate(encodings):
        length = len(encoding.ids)
        ids[row, :length] = torch.tensor(encoding.ids)
        mask[row, :length] = 1
        types[row, :length] = torch.tensor(encoding.type_ids)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if trained.uses_types and bool(types.any()):
        inputs["token_type_ids"] = types
    return inputs


def _continue_prompts(
    trained: TrainedModel,
    tokenizer: TextTokenizer,
    path: Path,
    max_new_tokens: int,
    phase: Callable[[int, int], None],
) -> Iterator[Prediction]:
    columns = trained.notes["columns"]
    data = DataSpec(text=decode(TextFields | str | None, columns["text"]), template=columns["template"])
    table, has_answer = _causal_table(data, path, trained.notes["encoding"])
    limit = int(trained.notes["max_length"] or 2048)
    for position in range(table.num_rows):
        row = {name: values[position] for name, values in table.columns.items()}
        place = table.place(position)
        answered = row if has_answer else {**row, **dict.fromkeys(causal_columns(data), ""), **row}
        sample = causal_sample(data, answered, tokenizer, place=place, composed=trained.notes["normalise"] == "nfc")
        start = sample.spans[-1][0] if sample.spans else len(sample.text)
        prompt = tokenizer.backend.encode(sample.text[:start], add_special_tokens=sample.special).ids
        yield Prediction(
            row=table.row_numbers[position],
            generated=_generate(trained, tokenizer, prompt[-limit:], max_new_tokens),
            perplexity=_perplexity(trained, tokenizer, sample.text, sample.special, sample.spans, limit)
            if has_answer
            else None,
        )
        phase(position + 1, table.num_rows)


def _causal_table(data: DataSpec, path: Path, encoding: str | None) -> tuple[Table, bool]:
    """The table with all columns of a sample, or with the prompt alone where the answer's column is missing."""
    from stoker.core.errors import DataError

    wanted = causal_columns(data)
    try:
        return read_table(path, wanted, encoding=encoding), True
    except DataError as error:
        if error.code != "ST110" or len(wanted) < 2:
            raise
        return read_table(path, wanted[:-1], encoding=encoding), False


def _generate(trained: TrainedModel, tokenizer: TextTokenizer, prompt: Sequence[int], max_new_tokens: int) -> str:
    """Greedy continuation up to the end-of-text token, without special tokens."""
    model: Any = trained.model
    first = next((i for i in map(tokenizer.special_id, ("bos", "eos")) if i is not None), None)
    if not prompt and first is None:
        return ""  # nothing to go on from
    ids = torch.tensor([list(prompt) or [first]], device=trained.device)
    with torch.inference_mode():
        output = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            pad_token_id=tokenizer.pad_id,
            eos_token_id=tokenizer.special_id("eos"),
        )
    ids_out = output[0, ids.shape[1] :].tolist()
    end = tokenizer.special_id("eos")
    kept = ids_out[: ids_out.index(end)] if end in ids_out else ids_out
    return str(tokenizer.backend.decode(kept, skip_special_tokens=True)).strip()


def _perplexity(
    trained: TrainedModel,
    tokenizer: TextTokenizer,
    text: str,
    special: bool,
    spans: Sequence[tuple[int, int]] | None,
    limit: int,
) -> float | None:
    """exp of the mean loss over the answer's tokens (over all where nothing says which part is the answer)."""
    encoding = tokenizer.backend.encode(text, add_special_tokens=special)
    ids = torch.tensor([encoding.ids[:limit]], device=trained.device)
    counted = [
        spans is None or any(a < end and b > start for start, end in spans) for a, b in encoding.offsets[:limit]
    ][1:]
    if ids.shape[1] < 2 or not any(counted):
        return None
    with torch.inference_mode():
        logits = trained.logits({"input_ids": ids, "attention_mask": torch.ones_like(ids)})[0, :-1].float()
    losses = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")
    mean = float(losses[torch.tensor(counted, device=losses.device)].mean())
    return math.exp(min(mean, 700.0))
