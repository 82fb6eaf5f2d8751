"""Causal-LM samples: what the text is, and that the loss falls on the response and its end alone."""

from pathlib import Path
from typing import Any

import pytest
from data_samples import CHATML, small_model, write_bpe, write_job, write_rows, write_wordpiece

from stoker.core.errors import DataError
from stoker.core.job import Job
from stoker.data.chat import chat_spans, render_chat
from stoker.data.encoded import EncodedSplit
from stoker.data.examples import render_examples
from stoker.data.prepare import prepare_data
from stoker.data.prepared import PreparedData

QA: dict[str, Any] = {"train": "train.jsonl", "text": {"prompt": "q", "response": "a"}}
ROWS = [{"q": "what is the answer", "a": "the answer is four"}, {"q": "오늘 날씨", "a": "좋다"}]


def job_of(
    folder: Path, rows: list[dict[str, Any]], data: dict[str, Any], template: str | None = CHATML, **keys: Any
) -> Job:
    write_bpe(folder / "tok", template)
    write_rows(folder / "train.jsonl", rows)
    return write_job(folder, data, task="causal_lm", **keys)


def prepared(
    folder: Path, rows: list[dict[str, Any]], data: dict[str, Any], template: str | None = CHATML, **keys: Any
) -> PreparedData:
    return prepare_data(job_of(folder, rows, data, template, **keys), small_model(512, model_type="llama"))


def parts(data: PreparedData, i: int) -> tuple[str, str]:
    """(all of sample i decoded, the tokens that carry loss decoded)."""
    assert isinstance(data.train, EncodedSplit) and data.tokenizer is not None
    ids = [int(t) for t in data.train.token_ids(i)]
    learnt = [t for t, on in zip(ids, data.train.loss_mask(i), strict=True) if on]
    return data.tokenizer.decode(ids), data.tokenizer.decode(learnt)


def test_prompt_and_response_through_the_chat_template(tmp_path: Path) -> None:
    data = prepared(tmp_path, ROWS, QA)
    whole, learnt = parts(data, 0)
    assert whole == (
        "<|im_start|>user\nwhat is the answer<|im_end|>\n<|im_start|>assistant\nthe answer is four<|im_end|>\n"
    )
    assert learnt == "the answer is four<|im_end|>\n"
    assert parts(data, 1)[1] == "좋다<|im_end|>\n"
    assert data.labels is None and data.profile.num_labels is None


def test_prompt_and_response_without_a_template_end_with_eos(tmp_path: Path) -> None:
    data = prepared(tmp_path, ROWS, QA, template=None)
    assert parts(data, 0) == ("what is the answer\nthe answer is four<|im_end|>", "the answer is four<|im_end|>")
    data = prepared(tmp_path, ROWS, {**QA, "loss_on": "all"}, template=None)
    assert parts(data, 0)[1] == parts(data, 0)[0]


def test_a_plain_column_learns_everything(tmp_path: Path) -> None:
    data = prepared(tmp_path, [{"t": "the answer"}], {"train": "train.jsonl", "text": "t"})
    assert parts(data, 0) == ("the answer<|im_end|>", "the answer<|im_end|>")


def test_a_template_of_columns(tmp_path: Path) -> None:
    data = {"train": "train.jsonl", "text": {"prompt": "q", "response": "a"}, "template": "Q: {q}\nA: {a} {{end}}"}
    done = prepared(tmp_path, ROWS, data)
    whole, learnt = parts(done, 0)
    assert whole == "Q: what is the answer\nA: the answer is four {end}<|im_end|>"
    assert learnt == " the answer is four {end}<|im_end|>"  # one token holds the space and the first word
    with pytest.raises(DataError, match="ST110"):
        prepared(tmp_path, ROWS, {**data, "template": "{nowhere}"})
    with pytest.raises(DataError, match="ST110"):
        prepared(tmp_path, ROWS, {**data, "template": "no place"})


def test_a_chat_learns_every_assistant_turn(tmp_path: Path) -> None:
    turns = [
        {"role": "system", "content": "be"},
        {"role": "user", "content": "what"},
        {"role": "assistant", "content": "four"},
        {"from": "human", "value": "is"},
        {"from": "gpt", "value": "the answer"},
    ]
    data = prepared(
        tmp_path, [{"m": turns}, {"m": []}, {"m": None}], {"train": "train.jsonl", "text": {"messages": "m"}}
    )
    assert parts(data, 0)[1] == "four<|im_end|>\nthe answer<|im_end|>\n"
    assert data.report.splits[0].dropped == {"empty_text": 1, "missing_text": 1}


def test_bad_chats_name_their_row(tmp_path: Path) -> None:
    chat = {"train": "train.jsonl", "text": {"messages": "m"}}
    with pytest.raises(DataError) as caught:
        prepared(tmp_path, [{"m": [{"role": "user"}]}], chat)
    assert caught.value.code == "ST111" and caught.value.place.endswith("train.jsonl:1")
    turns = [{"role": "user", "content": "what"}, {"role": "assistant", "content": "four"}]
    with pytest.raises(DataError, match="ST146"):
        prepared(tmp_path, [{"m": turns}], chat, template=None)
    with pytest.raises(DataError, match="roles must alternate"):
        prepared(tmp_path, [{"m": turns}], chat, template="{{ raise_exception('roles must alternate') }}")


def test_a_response_that_is_cut_away_is_dropped(tmp_path: Path) -> None:
    rows = [*ROWS, {"q": "what is the answer " * 40, "a": "four"}]
    data = prepared(tmp_path, rows, QA, train={"seq_len": 40})
    assert data.train.num_samples == 2 and data.report.splits[0].dropped == {"response_cut": 1}
    assert "ST131" in {n.code for n in data.notices}
    with pytest.raises(DataError, match="ST130"):
        prepared(tmp_path, rows[2:], QA, train={"seq_len": 40})


def test_templates_run_in_a_sandbox_without_a_clock() -> None:
    chat = [{"role": "user", "content": "x"}]
    for hostile in (
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% for i in range(9999999) %}{% endfor %}",
    ):
        with pytest.raises(DataError, match="ST146"):
            render_chat(hostile, chat, {}, place="f:1")
    dated = render_chat("{{ strftime_now('%Y') }}", chat, {}, place="f:1")
    assert dated == render_chat("{{ strftime_now('%d %b') }}", chat, {}, place="f:1")
    assert render_chat("{{ strftime_now is defined }}", chat, {}, place="f:1") == "False"


def test_a_template_that_rewrites_old_turns_leaves_the_last() -> None:
    """Reasoning models drop the thinking of earlier turns: those no longer are what the model said."""
    rewriting = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content if loop.last or m.role == 'user' else 'short' }}"
        "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    chat = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "long one"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "last"},
    ]
    text, spans = chat_spans(rewriting, chat, {}, place="f:1")
    assert [text[a:b] for a, b in spans] == ["last"]


def test_examples_show_where_the_loss_is(tmp_path: Path) -> None:
    shown = render_examples(prepared(tmp_path, ROWS, QA), 2)
    assert len(shown) == 2
    for example in shown:
        assert [segment.loss for segment in example.segments] == [False, True]
        assert example.segments[1].text.endswith("<|im_end|>\n") and not example.cut


def test_a_tokenizer_without_end_mark_adds_none(tmp_path: Path) -> None:
    write_wordpiece(tmp_path / "tok")
    write_rows(tmp_path / "train.jsonl", [{"t": "good film"}])
    job = write_job(tmp_path, {"train": "train.jsonl", "text": "t"}, task="causal_lm")
    data = prepare_data(job, small_model())
    assert parts(data, 0)[0] == "[CLS] good film [SEP]"
