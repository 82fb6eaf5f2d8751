"""What a causal-LM sample's text is: a column, prompt and response, a chat, or a template; and which part is learnt."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stoker.core.errors import DataError
from stoker.core.i18n import _
from stoker.core.job import DataSpec, TextFields
from stoker.data.chat import Span, chat_spans, check_messages, render_chat
from stoker.data.hangul import compose
from stoker.data.tokenizer import TextTokenizer

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalSample:
    """`text`; `spans`: characters that carry the loss (None: all); `special`: whether the tokenizer adds its own
    special tokens and an end-of-text token follows (a chat template writes them itself)."""

    text: str
    spans: tuple[Span, ...] | None
    special: bool


def causal_columns(data: DataSpec) -> tuple[str, ...]:
    """The columns that a sample's text needs. Raises DataError ST110 for a template without any place."""
    if data.template is not None:
        names = [match[1] for match in _PLACE.finditer(data.template) if match[1]]
        if not names:
            raise DataError(
                "ST110",
                _("the template names no column"),
                place="data.template",
                fix=_("write the column's name in braces, such as {text}"),
            )
        return tuple(dict.fromkeys(names))
    if isinstance(data.text, TextFields):
        fields = (data.text.prompt, data.text.response, data.text.messages)
        return tuple(name for name in fields if name is not None)
    return (data.text,) if data.text else ()


def response_column(data: DataSpec) -> str | None:
    """The column whose emptiness makes a row useless: the response, the chat, or the last place of a template."""
    if data.template is None:
        columns = causal_columns(data)
        return columns[-1] if columns else None
    names = [match[1] for match in _PLACE.finditer(data.template) if match[1]]
    answer = data.text.response if isinstance(data.text, TextFields) else None
    return answer if answer in names else names[-1]


def causal_sample(
    data: DataSpec, row: Mapping[str, Any], tokenizer: TextTokenizer | None, *, place: str, composed: bool
) -> CausalSample:
    """The sample of one row. Raises DataError ST111 or ST146 at `place`; `composed`: compose decomposed Hangul."""
    whole = data.loss_on == "all"
    if data.template is not None:
        text, spans = _from_template(data, row, composed)
        return CausalSample(text=text, spans=None if whole else spans, special=True)
    if not isinstance(data.text, TextFields):
        return CausalSample(text=_word(row[data.text or ""], composed), spans=None, special=True)
    template = tokenizer.chat_template if tokenizer else None
    if data.text.messages is not None:
        messages = check_messages(row[data.text.messages], place)
        return _chat(messages, template, tokenizer, place, whole, composed)
    prompt, answer = _word(row[data.text.prompt or ""], composed), _word(row[data.text.response or ""], composed)
    if template is not None:
        turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        return _chat(turns, template, tokenizer, place, whole, composed)
    joint = "" if not prompt or prompt[-1].isspace() or answer[:1].isspace() else "\n"
    head = prompt + joint
    return CausalSample(
        text=head + answer, spans=None if whole else ((len(head), len(head) + len(answer)),), special=True
    )


def _chat(
    messages: list[dict[str, Any]],
    template: str | None,
    tokenizer: TextTokenizer | None,
    place: str,
    whole: bool,
    composed: bool,
) -> CausalSample:
    if template is None:
        raise DataError(
            "ST146",
            _("the tokenizer has no chat template"),
            place=place,
            fix=_("use an instruction-tuned model's tokenizer, or prompt and response, or data.template"),
        )
    if composed:
        for message in messages:
            if isinstance(message["content"], str):
                message["content"] = compose(message["content"])
    special = tokenizer.special if tokenizer else {}
    if whole:
        return CausalSample(text=render_chat(template, messages, special, place=place), spans=None, special=False)
    text, spans = chat_spans(template, messages, special, place=place)
    return CausalSample(text=text, spans=spans, special=False)


def _from_template(data: DataSpec, row: Mapping[str, Any], composed: bool) -> tuple[str, tuple[Span, ...] | None]:
    """The text, and the span from the response's place to the end; None for a template of one place."""
    wanted, count, start, length = response_column(data), 0, None, 0
    parts: list[str] = []
    for literal, name in _pieces(data.template or ""):
        word = literal if name is None else _word(row[name], composed)
        if name is not None:
            count += 1
            start = length if name == wanted else start
        parts.append(word)
        length += len(word)
    return "".join(parts), None if count < 2 or start is None else ((start, length),)


def _pieces(template: str) -> Iterator[tuple[str, str | None]]:
    """(literal text, None) and ("", column name) in order; doubled braces are literal ones."""
    last = 0
    for match in _PLACE.finditer(template):
        yield template[last : match.start()], None
        if match[1]:
            yield "", match[1]
        else:
            yield match[0][0], None
        last = match.end()
    yield template[last:], None


def _word(value: Any, composed: bool) -> str:
    text = "" if value is None else str(value)
    return compose(text) if composed else text
