"""The data profile measured on the data itself: a sample of at most 2,000 rows through the tokenizer, or image counts.

Apart from `profile`, because a job that declares its sizes needs none of the readers that this loads.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stoker.core.errors import DataError
from stoker.core.estimate import Source
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.plan import ResolvedModel
from stoker.core.profile import DataProfile, LengthDistribution, lengths_constant, lengths_from_samples
from stoker.data.drafts import draft_rows, text_columns
from stoker.data.files import file_bytes, real_path, resolve_path
from stoker.data.image_files import class_folders, images_in
from stoker.data.images import image_columns
from stoker.data.labels import label_columns
from stoker.data.sample import Sample, sample_table
from stoker.data.seq_limit import embedding_rows
from stoker.data.splits import SPELLINGS, job_columns
from stoker.data.tokenizer import TextTokenizer, load_tokenizer, require_vocabulary, tokenizer_path

_SAMPLE_ROWS = 2000
_BYTES_PER_TOKEN = 4.0  # UTF-8, where no tokenizer is here: English BPE 4 to 4.5, Korean WordPiece 5.5 (KcELECTRA)


def profile_of_sample(job: Job, model: ResolvedModel, path: Path) -> tuple[DataProfile, list[str]]:
    """(profile, notes) of a table, from the first rows and its size; exact where the table is small."""
    tally = job.data.split or (label_columns(job)[0] if _one_label_column(job) else None)
    sample = sample_table(path, job_columns(job), count=_SAMPLE_ROWS, encoding=job.data.encoding, tally=tally)
    where = tokenizer_path(job, model)
    tokenizer = None if where is None else load_tokenizer(where)
    if tokenizer is not None:
        require_vocabulary(tokenizer, embedding_rows(model.config))
    texts = _sample_texts(job, sample, tokenizer)
    sizes = [len(text.encode("utf-8", "surrogatepass")) for text in texts]
    lengths = _with_longest(_lengths(texts, sizes, tokenizer), sizes, sample)
    train, evaluation = _row_counts(job, sample)
    profile = DataProfile(
        num_samples=max(train, 1),
        lengths=lengths,
        num_eval_samples=evaluation,
        num_labels=_num_labels(job, sample),
        bytes_per_sample=sum(sizes) / len(sizes),
        source=Source.ANALYTIC if tokenizer else Source.ASSUMED,
    )
    notes = [sample_note(profile)]
    if tokenizer is None:
        notes.append(_("no tokenizer is here: tokens guessed as a quarter of the text's UTF-8 bytes"))
    return profile, notes


def sample_note(profile: DataProfile) -> str:
    """The line that says that lengths come from a sample."""
    return _(
        "token lengths come from a sample of the data ({mean:.1f} tokens on average); `stoker check JOB` measures all"
    ).format(mean=profile.lengths.mean)


def _sample_texts(job: Job, sample: Sample, tokenizer: TextTokenizer | None) -> list[str]:
    """Texts of the sample's usable rows. In a partly read text file a torn row is skipped, elsewhere it is an error."""
    table, texts = sample.table, []
    if job.task == "causal_lm" and (tokenizer is None or (tokenizer.chat_template is None and _is_chat(job))):
        for position in range(table.num_rows):
            texts.append("\n".join(str(table.columns[name][position] or "") for name in text_columns(job)))
    elif sample.exact:
        texts = _joined(job, sample, range(table.num_rows), tokenizer)
    else:
        for position in range(table.num_rows):
            try:
                texts.extend(_joined(job, sample, (position,), tokenizer))
            except DataError:
                continue
    if not texts:
        raise DataError(
            "ST130",
            _("no row of the sample is usable"),
            place=str(table.file),
            fix=_("`stoker check JOB` says why each row is left out"),
        )
    return texts


def _joined(job: Job, sample: Sample, positions: Sequence[int], tokenizer: TextTokenizer | None) -> list[str]:
    draft = draft_rows(job, sample.table, positions, "train", tokenizer)
    if draft.pairs is None:
        return draft.texts
    return [f"{a}\n{b}" for a, b in zip(draft.texts, draft.pairs, strict=True)]


def _is_chat(job: Job) -> bool:
    return job.data.template is None and not isinstance(job.data.text, (str, type(None)))


def _lengths(texts: list[str], sizes: list[int], tokenizer: TextTokenizer | None) -> LengthDistribution:
    if tokenizer is None:
        return lengths_from_samples([round(size / _BYTES_PER_TOKEN) + 2 for size in sizes])
    return lengths_from_samples([length for _encoding, length in tokenizer.encode(texts, seq_len=10**9)])


def _with_longest(lengths: LengthDistribution, sizes: list[int], sample: Sample) -> LengthDistribution:
    """`lengths` of a sample, ending where the whole data may: memory is planned for the longest, and a sample
    seldom holds it. Its bytes over the sample's bytes per token, or twice the sample's longest where unknown."""
    if sample.total <= len(sizes):
        return lengths
    longest = 2.0 * lengths.maximum
    if sample.longest_bytes is not None:
        longest = max(lengths.maximum, round(sample.longest_bytes * lengths.mean * len(sizes) / max(sum(sizes), 1)))
    return replace(lengths, quantiles=(*lengths.quantiles[:-1], float(longest)))


def _row_counts(job: Job, sample: Sample) -> tuple[int, int]:
    """(training, evaluation) rows of the whole data."""
    data, total = job.data, sample.total
    if data.split is not None:
        named: dict[str, int] = {}
        for word, count in sample.values.items():
            split = SPELLINGS.get(word.strip().lower(), "")
            named[split] = named.get(split, 0) + count
        scale = total / max(sum(sample.values.values()), 1)
        return round(named.get("train", 0) * scale), round(named.get("eval", 0) * scale)
    if data.eval_frac is not None:
        held = round(total * data.eval_frac)
        return total - held, held
    if data.eval is None:
        return total, 0
    other = sample_table(resolve_path(job, data.eval), (), count=1, encoding=data.encoding, tally=None)
    return total, other.total


def _one_label_column(job: Job) -> bool:
    return job.task != "causal_lm" and job.problem == "single_label" and job.data.label_names is None


def _num_labels(job: Job, sample: Sample) -> int | None:
    declared = job.num_declared_labels
    if job.task == "causal_lm" or declared is not None:
        return declared
    if job.data.split is None:
        return len(sample.values) or None
    column = sample.table.columns[label_columns(job)[0]]
    return len({str(value) for value in column})


def profile_of_images(job: Job, path: Path) -> tuple[DataProfile, list[str]]:
    """(profile, notes) of an image folder or a table of images."""
    notes: list[str] = []
    if path.is_dir():
        counts = {folder.name: len(images_in(folder)) for folder in class_folders(path)}
        total, sizes = sum(counts.values()), [file_bytes(p) for p in images_in(class_folders(path)[0])[:100]]
        num_labels = len(job.data.label_names or counts)
        evaluation = sum(len(images_in(f)) for f in _eval_folders(job))
    else:
        columns = image_columns(job, path, with_split=True)
        tally = job.data.split or label_columns(job)[0]
        sample = sample_table(path, columns, count=_SAMPLE_ROWS, encoding=job.data.encoding, tally=tally)
        (total, evaluation), sizes, counts = _row_counts(job, sample), [], {}
        num_labels = _num_labels(job, sample) or 0
        if not sample.exact:
            notes.append(_("the number of images is estimated from a sample of the table"))
    if path.is_dir() and job.data.eval_frac is not None:
        evaluation = round(total * job.data.eval_frac)
        total -= evaluation
    profile = DataProfile(
        num_samples=max(total, 1),
        lengths=lengths_constant(1),
        num_eval_samples=evaluation,
        num_labels=num_labels or None,
        bytes_per_sample=sum(sizes) / len(sizes) if sizes else 0.0,
        label_counts=counts,
        source=Source.ANALYTIC,
    )
    return profile, notes


def _eval_folders(job: Job) -> list[Path]:
    folder = resolve_path(job, job.data.eval) if job.data.eval else None
    return class_folders(folder) if folder is not None and real_path(folder).is_dir() else []
