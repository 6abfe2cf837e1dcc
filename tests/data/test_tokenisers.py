"""Tokenisers: exact, repeatable, saved and loaded."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from softmax_rnn.data.encode import Encoder
from softmax_rnn.data.tokenisers import (
    bpe_tokenizer,
    byte_tokenizer,
    load_tokenizer,
    tokenizer_hash,
    train_bpe,
    vocabulary_size,
)
from softmax_rnn.errors import InputError
from softmax_rnn.model.pretrained import load_tokenizer as of_model

TEXTS = [f"the cat number {number} sat on the mat; the dog did not" for number in range(50)]
BYTES = byte_tokenizer()
BPE = train_bpe(TEXTS, 300)


@example("<|endoftext|>")
@given(st.text())
def test_bytes_are_the_bytes_and_come_back(text):
    ids = BYTES(text, split_special_tokens=True)["input_ids"]
    assert ids == list(text.encode())
    assert BYTES.decode(ids) == text


def test_a_prompt_can_name_the_end_of_a_document():
    """As with any tokeniser of transformers; `Encoder` takes no text for it."""
    assert BYTES("a<|endoftext|>b")["input_ids"] == [97, 256, 98]


@given(st.text())
def test_bpe_comes_back(text):
    assert BPE.decode(BPE(text)["input_ids"]) == text


def test_the_end_of_a_document_is_eos_and_pad():
    assert (BYTES.eos_token_id, BYTES.pad_token_id, len(BYTES), vocabulary_size(BYTES)) == (256, 256, 257, 257)
    assert BPE.eos_token_id == BPE.pad_token_id
    assert len(BPE) == vocabulary_size(BPE) == 300


@pytest.mark.parametrize("tokenizer", [BYTES, BPE], ids=["bytes", "bpe"])
def test_saved_and_loaded_it_is_the_same(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    text = "the  cat,  don't é\n\tsat . ! <|endoftext|>"
    for again in (AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(str(tmp_path))):
        assert again(text)["input_ids"] == tokenizer(text)["input_ids"]
        assert again.decode(again(text)["input_ids"]) == text
        assert again.eos_token_id == tokenizer.eos_token_id
        assert tokenizer_hash(again) == tokenizer_hash(tokenizer)


def test_bpe_training_repeats():
    assert tokenizer_hash(train_bpe(TEXTS, 300)) == tokenizer_hash(BPE)
    assert tokenizer_hash(train_bpe(TEXTS, 301)) != tokenizer_hash(BPE)
    assert tokenizer_hash(train_bpe(reversed(TEXTS), 300)) == tokenizer_hash(BPE)


def test_bpe_is_trained_once(tmp_path):
    first = bpe_tokenizer(TEXTS, 300, text_hash="x", cache=tmp_path)
    again = bpe_tokenizer(iter(()), 300, text_hash="x", cache=tmp_path)
    assert tokenizer_hash(first) == tokenizer_hash(again) == tokenizer_hash(BPE)


@pytest.mark.parametrize("workers", [1, 2])
def test_encoding_ends_each_document_and_takes_no_text_for_its_end(workers):
    texts = ["hello", "", "a<|endoftext|>b"]
    encoded = Encoder(BYTES, workers)(texts)
    assert [tokens.tolist() for tokens in encoded] == [[*text.encode(), 256] for text in texts]


def test_encoding_ignores_truncation_and_padding_of_the_tokenizer():
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(2)
    tokenizer.backend_tokenizer.enable_padding(length=9)
    assert Encoder(tokenizer)(["hello"])[0].tolist() == [*b"hello", 256]
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 2


def test_encoding_leaves_the_environment_alone(monkeypatch):
    import os

    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    Encoder(BYTES, 2)(["x"])
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false" and "RAYON_NUM_THREADS" not in os.environ


def test_a_tokenizer_without_eos_is_refused(tmp_path):
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(tokenizer_object=BYTES.backend_tokenizer).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"^tokenizer: '.*' has no eos token, which must end each document$"):
        load_tokenizer(str(tmp_path))


def test_a_tokenizer_that_is_not_there(monkeypatch):
    def offline(*args, **kwargs):
        raise OSError("We couldn't connect\nto anything")

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", offline)
    with pytest.raises(InputError) as caught:
        load_tokenizer("gpt2")
    assert str(caught.value) == "tokenizer: 'gpt2' is not 'bytes' or 'bpe' and cannot be loaded: We couldn't connect"


def test_a_python_tokenizer_is_encoded_too():
    from transformers import ByT5Tokenizer

    tokenizer = ByT5Tokenizer(extra_ids=0)
    plain = tokenizer("hello", add_special_tokens=False)["input_ids"]
    assert Encoder(tokenizer)(["hello"])[0].tolist() == [*plain, tokenizer.eos_token_id]
    assert tokenizer_hash(tokenizer) == tokenizer_hash(ByT5Tokenizer(extra_ids=0))


def test_a_damaged_tokenizer_is_one_line(tmp_path):
    byte_tokenizer().save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text())
    values["model"]["vocab"] = {word: {} for word in values["model"]["vocab"]}
    path.write_text(json.dumps(values))
    for load in (load_tokenizer, of_model):
        with pytest.raises(InputError, match=r"^tokenizer: .* cannot be loaded: [^\n]+$"):
            load(str(tmp_path))
