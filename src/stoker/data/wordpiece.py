"""The BERT and ELECTRA tokenizer built from vocab.txt and its settings, as the models' own code defines it.

transformers' `BertTokenizerFast(vocab_file=...)` ignores the file and answers unknown for everything; this does not,
and a contract test compares the ids with AutoTokenizer.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker.core.errors import DataError
from stoker.core.i18n import _

_MAX_CHARS_PER_WORD = 100  # as in BERT's own code: a longer word is unknown


def bert_tokenizer(
    vocab_file: Path, config: Mapping[str, Any], special: Mapping[str, str], added: Mapping[str, Any]
) -> Any:
    """tokenizers.Tokenizer of a WordPiece vocabulary. Raises DataError ST141 when the vocabulary is none."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = read_vocabulary(vocab_file)
    names = {**_DEFAULTS, **special}
    unknown, cls, sep = names["unk_token"], names["cls_token"], names["sep_token"]
    for name in (unknown, cls, sep):
        if name not in vocabulary:
            raise DataError(
                "ST141",
                _("the vocabulary lacks {token}").format(token=name),
                place=str(vocab_file),
                fix=_("check that this is the model's own vocab.txt"),
            )
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=_MAX_CHARS_PER_WORD))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
        strip_accents=config.get("strip_accents"),
        lowercase=bool(config.get("do_lower_case", True)),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    backend.add_special_tokens([name for name in dict.fromkeys(names.values()) if name in vocabulary])
    for token, _position in sorted(added.items(), key=lambda item: int(item[1])):
        backend.add_tokens([AddedToken(token, normalized=False)])
    return backend


_DEFAULTS = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}


def read_vocabulary(file: Path) -> dict[str, int]:
    """Token -> id, the id being the line from 0. Raises DataError ST141 when it is not UTF-8."""
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            "ST141",
            _("not UTF-8 at byte {offset}").format(offset=error.start),
            place=str(file),
            fix=_("fetch it again"),
        ) from error
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return {line.rstrip("\r"): number for number, line in enumerate(lines)}
