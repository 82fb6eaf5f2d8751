"""Chats as text, and which characters of the text carry the loss: the assistant's turns.

Templates are the model's own Jinja text, run in an immutable sandbox; they get no clock, so that the same chat is the
same tokens on every day of a run.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from stoker.core.errors import DataError
from stoker.core.i18n import _

Span = tuple[int, int]
Message = Mapping[str, Any]
_FIXED_DATE = "26 Jul 2024"  # the date that Llama 3's template itself assumes where no clock is given
_MAX_TEMPLATE_CHARS = 1 << 20


def render_chat(
    template: str, messages: Sequence[Message], special: Mapping[str, str], *, place: str, prompt: bool = False
) -> str:
    """The text of `messages`; `prompt`: ends where the assistant's answer would begin. Raises DataError ST146."""
    from jinja2.exceptions import TemplateError

    try:
        return str(_compile(template).render(messages=list(messages), add_generation_prompt=prompt, **special))
    except (TemplateError, TypeError, ValueError, KeyError, RecursionError, OverflowError) as error:
        raise DataError(
            "ST146",
            _("the chat template refuses this chat: {error}").format(error=str(error)[:200]),
            place=place,
            fix=_("check the roles and their order, or set data.template"),
        ) from error


def chat_spans(
    template: str, messages: Sequence[Message], special: Mapping[str, str], *, place: str
) -> tuple[str, tuple[Span, ...]]:
    """(text of the chat, character spans of the assistant's turns, end-of-turn mark included).

    A turn is found by rendering the chat up to it and up to its end: both must be prefixes of the whole. Templates
    that rewrite earlier turns (dropping their thinking) leave only the last turn to learn from.
    """
    text = render_chat(template, messages, special, place=place)
    spans: list[Span] = []
    for turn, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        upto = text if turn == len(messages) - 1 else render_chat(template, messages[: turn + 1], special, place=place)
        start = _start_of_turn(template, messages[:turn], special, upto, place)
        if start is not None and text.startswith(upto):
            spans.append((start, len(upto)))
    if not spans and any(message.get("role") == "assistant" for message in messages):
        raise DataError(
            "ST146",
            _("the assistant's turn is not found in what the chat template makes of it"),
            place=place,
            fix=_("set data.template, or data.loss_on: all"),
        )
    return text, tuple(spans)


def check_messages(value: Any, place: str) -> list[dict[str, Any]]:
    """`value` as a list of {role, content}. Raises DataError ST111."""
    if isinstance(value, str):  # csv and some parquet files hold the chat as JSON text
        from stoker.data.json_lines import parse_object

        value = parse_object(value, place, kind=list)
    messages = []
    for item in value if isinstance(value, list) else [None]:
        pair = item if isinstance(item, dict) else {}
        role = pair.get("role", pair.get("from"))
        content = pair.get("content", pair.get("value"))
        if not isinstance(role, str) or not isinstance(content, (str, list)):
            raise DataError(
                "ST111",
                _("not a chat: a list of {{role, content}} is expected").replace("{{", "{").replace("}}", "}"),
                place=place,
                fix=_("each message needs a role (system, user, assistant) and its content"),
            )
        messages.append({**pair, "role": _ROLES.get(role, role), "content": content})
    return messages


_ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant"}


def _start_of_turn(
    template: str, before: Sequence[Message], special: Mapping[str, str], upto: str, place: str
) -> int | None:
    for prompt in (True, False):
        if not before and not prompt:
            return 0
        try:
            head = render_chat(template, before, special, place=place, prompt=prompt) if before else ""
        except DataError:
            continue  # some templates refuse a chat that ends with this role
        if upto.startswith(head):
            return len(head)
    return None


@functools.lru_cache(maxsize=8)
def _compile(template: str) -> Any:
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    if len(template) > _MAX_TEMPLATE_CHARS:
        raise ValueError(_("the template is longer than 1 MiB"))
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    if "strftime_now is defined" not in template:
        environment.globals["strftime_now"] = lambda _format: _FIXED_DATE
    return environment.from_string(template)


def _to_json(value: Any, indent: int | None = None, **_unused: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    from jinja2.exceptions import TemplateError

    raise TemplateError(message)
