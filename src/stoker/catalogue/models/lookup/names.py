"""Model names as people write them in tables, brought to one form: `LLAMA3_70B`, `Llama 2 7 B`, `mistral-7b-v0.2`.

Three forms of a name, each looser than the one before: all of it; without words that leave the shape alone
(Instruct, chat, hf, AWQ, a date); without a version as well (`v1.0`). A looser form is tried only where the
stricter found nothing.
"""

import re
from collections.abc import Iterator
from typing import Final

# Words of a name that say how a model was trained, packed or stored; none changes the shape of a layer.
_NEUTRAL: Final = frozenset(
    (
        *("instruct", "chat", "it", "pt", "hf", "base", "sft", "dpo", "rlhf", "thinking", "preview", "reasoning"),
        *("awq", "gptq", "aqlm", "gguf", "bnb", "int4", "int8", "2bit", "4bit", "8bit", "fp8", "nvfp4", "mxfp4"),
        *("bf16", "fp16", "fp32", "quantized", "quant", "unsloth", "meta", "hg", "model", "pretrain", "finetune"),
        *("dynamic", "beta", "mcore", "python", "1x16", "2x8", "lora", "qlora", "squad", "mrpc", "glue", "pytorch"),
    )
)
_DATE: Final = re.compile(r"^(2[3-6](0[1-9]|1[0-2])|0[1-9][0-3]\d|1[0-2][0-3]\d|20(0[1-9]|1[0-2])\d\d)$")
_VERSION: Final = re.compile(r"^v\d+(\.\d+)*$")
_SIZE: Final = re.compile(r"^(\d+(?:\.\d+)?)(b|m)$")
_BRACKET: Final = re.compile(r"\([^)]*\)|\[[^\]]*\]")


def words_of(name: str) -> tuple[str, ...]:
    """The words of `name`, lower case, its organisation and anything in brackets left out; `7 B` is one word."""
    text = _BRACKET.sub(" ", name).strip().lower()
    text = re.sub(r"/(?=\d+$)", "-", text).rsplit("/", 1)[-1]  # ViT-B/16 is no file of an organisation
    text = re.sub(r"(?<=\d)\s+(?=[bm]\b)", "", text)
    return tuple(word for word in re.split(r"[\s_\-:,]+", text) if word)


def keys_of(name: str) -> Iterator[str]:
    """Keys to look `name` up by, the strictest first; without separators, so that `llama2-7b` is `Llama 2 7B`."""
    seen: set[str] = set()
    for words in (words_of(name), words_of(_decimal(name))):
        for kept in (words, _without_neutral(words), _without_version(_without_neutral(words))):
            key = "".join(kept)
            if key and key not in seen:
                seen.add(key)
                yield key


def _decimal(name: str) -> str:
    """`phi-1_5` and `stablelm-2-1_6b` write a decimal point as an underscore."""
    return re.sub(r"(?<=\d)_(?=\d)", ".", name)


def _without_neutral(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in _NEUTRAL and not _DATE.match(word))


def _without_version(words: tuple[str, ...]) -> tuple[str, ...]:
    kept = tuple(word for word in words if not _VERSION.match(word))
    return tuple(re.sub(r"(?<=\d)v\d+\.\d+$", "", word) for word in kept)  # ResNet50v1.5


def stated_params(name: str) -> float | None:
    """Parameters that a name states (`6.8B`, `350M`), or None where it states none or several."""
    sizes = [match for match in map(_SIZE.match, words_of(name)) if match]
    if len(sizes) != 1:
        return None
    return float(sizes[0][1]) * (1e9 if sizes[0][2] == "b" else 1e6)
