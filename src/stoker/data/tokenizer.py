"""A tokenizer from its files by the `tokenizers` library alone: the same ids as transformers, without loading it.

Read are tokenizer.json, and vocab.txt of the BERT and ELECTRA kind with its tokenizer_config.json. Where a folder
holds only other files (sentencepiece, vocab.json with merges.txt), transformers' AutoTokenizer makes the object.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.core.codec import loads
from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.core.job import Job
from stoker.core.paths import path_exists
from stoker.core.plan import ResolvedModel
from stoker.data.files import regular_file, resolve_path

BATCH_TEXTS = 4096
_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
)
_VOCAB_FILES = ("tokenizer.json", "vocab.txt", *_FILES[6:])
_MAX_CONFIG_BYTES = 64 << 20
_BERT_LIKE = ("bert", "electra", "distil", "convbert", "mobilebert")
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_NO_LIMIT = 10**9  # transformers writes 1e30 where a tokenizer knows no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTokenizer:
    """A loaded tokenizer. `backend`: tokenizers.Tokenizer, without truncation or padding of its own.

    `special`: names such as eos_token to their text. `base_size`: vocabulary without added tokens; `size`: largest
    id + 1. `chat_template`: the Jinja text or None. `fingerprint`: hash of the files' contents.
    """

    backend: Any
    source: str
    fingerprint: str
    base_size: int
    size: int
    special: Mapping[str, str] = field(default_factory=dict)
    model_max_length: int | None = None
    chat_template: str | None = None

    def special_id(self, name: str) -> int | None:
        """Id of `bos`, `eos`, `unk`, `sep`, `pad`, `cls` or `mask`; None where the tokenizer has none."""
        text = self.special.get(f"{name}_token")
        found = self.backend.token_to_id(text) if text else None
        return None if found is None else int(found)

    @property
    def pad_id(self) -> int:
        """What fills a batch: pad, else eos, else 0 (it is masked, so any id serves)."""
        return next((i for i in (self.special_id("pad"), self.special_id("eos")) if i is not None), 0)

    def encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, seq_len: int, special: bool = True
    ) -> Iterator[tuple[Any, int]]:
        """(encoding cut at `seq_len`, length before the cut) of every text, special tokens added, in order.

        Pairs are cut longest first. Same ids as transformers' `tokenizer(texts, pairs, truncation=True)`.
        """
        for start in range(0, len(texts), BATCH_TEXTS):
            batch: list[Any] = list(texts[start : start + BATCH_TEXTS])
            if pairs is not None:
                batch = list(zip(batch, pairs[start : start + BATCH_TEXTS], strict=True))
            self.backend.no_truncation()
            whole = self.backend.encode_batch_fast(batch, add_special_tokens=special)
            lengths = [len(encoding) for encoding in whole]
            long = [i for i, length in enumerate(lengths) if length > seq_len]
            if long:
                self.backend.enable_truncation(seq_len)
                cut = self.backend.encode_batch_fast([batch[i] for i in long], add_special_tokens=special)
                self.backend.no_truncation()
                for i, encoding in zip(long, cut, strict=True):
                    whole[i] = encoding
            yield from zip(whole, lengths, strict=True)

    def encode_with_offsets(self, texts: Sequence[str], *, special: bool) -> Iterator[Any]:
        """Uncut encodings that know which characters each token covers, for the loss mask."""
        self.backend.no_truncation()
        for start in range(0, len(texts), BATCH_TEXTS):
            yield from self.backend.encode_batch(list(texts[start : start + BATCH_TEXTS]), add_special_tokens=special)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens visible."""
        return str(self.backend.decode([int(i) for i in ids], skip_special_tokens=False))


def require_vocabulary(tokenizer: TextTokenizer, rows: int | None) -> None:
    """Raises DataError ST143 when the tokenizer's vocabulary is larger than the embedding.

    Added tokens beyond it are let pass until one occurs: some published models carry a few that they never use.
    """
    if rows is not None and tokenizer.base_size > rows:
        raise DataError(
            "ST143",
            _("the tokenizer has {size} tokens, the model's embedding {rows} rows").format(
                size=tokenizer.base_size, rows=rows
            ),
            place=tokenizer.source,
            fix=_("use the tokenizer that belongs to the model"),
        )


def settle_parallelism() -> None:
    """Say whether worker processes tokenise in parallel, before any worker starts (case 31); a user's word stays."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def tokenizer_path(job: Job, model: ResolvedModel) -> Path | None:
    """The tokenizer's folder or file: the job's own, else the model's; None where neither has one."""
    if job.tokenizer is not None:
        local = resolve_path(job, job.tokenizer)
        if path_exists(local) or model.tokenizer is None:
            return local
    for name in (model.tokenizer, model.folder):
        if name is not None:
            path = Path(job.base_dir) / Path(name)
            folder = path if path.is_dir() else path.parent
            if path.is_file() or any((folder / file).is_file() for file in _VOCAB_FILES):
                return path
    return None


def require_tokenizer(job: Job, model: ResolvedModel) -> TextTokenizer:
    """The job's tokenizer. Raises DataError ST140 where there is none, ST141 where it cannot be read."""
    path = tokenizer_path(job, model)
    if path is None:
        raise DataError(
            "ST140",
            _("the model {name} brings no tokenizer here").format(name=model.name),
            place=f"{job.source_path} tokenizer".strip(),
            fix=_("name its folder under `tokenizer:`, or fetch the model with `stoker check JOB --download`"),
        )
    return load_tokenizer(path)


def tokenizer_files(path: Path) -> list[Path]:
    """The files that make the tokenizer at `path` (a folder or one of its files), those that exist."""
    folder = path if path.is_dir() else path.parent
    named = [] if path.is_dir() else [path]
    return named + [folder / name for name in _FILES if (folder / name).is_file() and folder / name not in named]


def load_tokenizer(path: Path) -> TextTokenizer:
    """The tokenizer of a folder or file. Raises DataError ST140 (nothing there) or ST141 (unreadable)."""
    files = tokenizer_files(path)
    folder = path if path.is_dir() else path.parent
    main = path if path.is_file() and path.name not in ("config.json", "tokenizer_config.json") else None
    if main is None:
        main = next((folder / name for name in _VOCAB_FILES if (folder / name).is_file()), None)
    if main is None:
        raise DataError(
            "ST140",
            _("there is no tokenizer.json or vocab.txt here"),
            place=str(path),
            fix=_("name the folder that holds the tokenizer's files"),
        )
    config = _read_json(folder / "tokenizer_config.json")
    special = _special_tokens(folder, config)
    try:
        if main.suffix == ".json" and main.name != "vocab.json":
            from tokenizers import Tokenizer

            backend = Tokenizer.from_file(str(regular_file(main)))
        elif main.suffix == ".txt" and _is_bert_like(folder, config):
            from stoker.data.wordpiece import bert_tokenizer

            backend = bert_tokenizer(regular_file(main), config, special, _read_json(folder / "added_tokens.json"))
        else:
            backend, known = _through_transformers(folder)
            special = {**known, **special}
    except DataError:
        raise
    except Exception as error:  # the library raises plain Exception for any broken file
        raise DataError(
            "ST141",
            _("the tokenizer cannot be read: {error}").format(error=str(error)[:200]),
            place=str(main),
            fix=_("fetch the model's files again, or name another folder under `tokenizer:`"),
        ) from error
    backend.no_truncation()
    backend.no_padding()
    limit = config.get("model_max_length")
    vocabulary = backend.get_vocab(with_added_tokens=True)
    special = {**_customary(backend, vocabulary), **special}
    return TextTokenizer(
        backend=backend,
        source=str(path),
        fingerprint=_fingerprint(files),
        base_size=int(backend.get_vocab_size(with_added_tokens=False)),
        size=max(vocabulary.values(), default=-1) + 1,
        special=special,
        model_max_length=int(limit) if isinstance(limit, (int, float)) and 0 < limit < _NO_LIMIT else None,
        chat_template=_chat_template(folder, config),
    )


def _fingerprint(files: Sequence[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        if file.stat().st_size > _MAX_CONFIG_BYTES:
            raise ValueError(_("larger than 64 MiB"))
        value = loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            "ST141", _("not readable JSON: {error}").format(error=error), place=str(file), fix=_("fetch it again")
        ) from error
    return value if isinstance(value, dict) else {}


def _special_tokens(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by name: tokenizer_config.json wins over special_tokens_map.json, as in transformers."""
    found: dict[str, str] = {}
    for source in (_read_json(folder / "special_tokens_map.json"), config):
        for name in _SPECIAL:
            value = source.get(name)
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str) and text:
                found[name] = text
    return found


def _customary(backend: Any, vocabulary: Mapping[str, int]) -> dict[str, str]:
    """Special tokens that the files do not name but the vocabulary has, under the names that their kinds use."""
    found = {name: text for name, texts in _CUSTOMARY.items() for text in texts if text in vocabulary}
    unknown = getattr(backend.model, "unk_token", None)
    return {**found, "unk_token": unknown} if isinstance(unknown, str) else found


_CUSTOMARY = {
    "unk_token": ("<unk>", "[UNK]"),
    "pad_token": ("<pad>", "[PAD]"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("<mask>", "[MASK]"),
}


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template") or _read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(template, list):  # several named templates: the one called default
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _is_bert_like(folder: Path, config: Mapping[str, Any]) -> bool:
    kind = str(config.get("tokenizer_class") or _read_json(folder / "config.json").get("model_type") or "bert").lower()
    return any(name in kind for name in _BERT_LIKE) and "japanese" not in kind


def _through_transformers(folder: Path) -> tuple[Any, dict[str, str]]:
    """(backend, special tokens by name): what only the model's tokenizer class knows."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise DataError(
            "ST141",
            _("this kind of tokenizer needs transformers, which is not installed"),
            place=str(folder),
            fix=_("pip install 'stoker[train]', or give the folder a tokenizer.json"),
        ) from error
    made = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    backend = getattr(made, "backend_tokenizer", None)
    if backend is None:
        raise DataError(
            "ST141",
            _("{kind} has no fast form").format(kind=type(made).__name__),
            place=str(folder),
            fix=_("give the folder a tokenizer.json"),
        )
    names = {name: str(getattr(made, name)) for name in _SPECIAL if getattr(made, name, None) is not None}
    return backend, names
