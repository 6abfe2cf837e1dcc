"""Tokens on disk are the documents, also after harm to the files."""

import numpy as np
import pytest

from softmax_rnn.data import token_files as module
from softmax_rnn.data.encode import Encoder
from softmax_rnn.data.token_files import cached_tokens
from softmax_rnn.data.tokenisers import byte_tokenizer

ENCODER = Encoder(byte_tokenizer())
LABELLED = [("train", "abc"), ("test", "é"), ("train", ""), ("train", "x" * 50), ("test", "yz")]


def read(tokens):
    pieces = [tokens.tokens[a:b] for a, b in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)]
    assert all(piece[-1] == tokens.eos for piece in pieces)
    return [bytes(piece[:-1].astype(np.uint8)).decode() for piece in pieces]


@pytest.mark.parametrize("at_once", [1, 40, 10**6])
def test_each_side_has_its_documents_whatever_the_batches(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(module, "_CHARACTERS_AT_ONCE", at_once)
    result = cached_tokens(tmp_path / "x", LABELLED, ("train", "test"), ENCODER)
    for name, tokens in result.items():
        texts = [text for side, text in LABELLED if side == name]
        assert read(tokens) == texts
        assert tokens.documents == len(texts)
        assert tokens.text_bytes == len("".join(texts).encode())


def test_the_arrays_are_mapped_and_small(tmp_path):
    tokens = cached_tokens(tmp_path / "x", LABELLED, ("train", "test"), ENCODER)["train"]
    assert tokens.tokens.dtype == np.uint16
    assert isinstance(tokens.tokens.base, np.memmap)
    assert not tokens.tokens.flags.writeable


def test_the_second_time_nothing_is_read(tmp_path):
    first = cached_tokens(tmp_path / "x", LABELLED, ("train", "test"), ENCODER)
    again = cached_tokens(tmp_path / "x", iter(()), ("train", "test"), ENCODER)
    for name in first:
        assert read(again[name]) == read(first[name])
        assert again[name].content_hash == first[name].content_hash


@pytest.mark.parametrize("file", ["train.tokens.npy", "test.offsets.npy", "train.json"])
@pytest.mark.parametrize("harm", ["cut", "zeros", "noise"])
def test_a_damaged_file_is_made_again(tmp_path, capsys, file, harm):
    whole = cached_tokens(tmp_path / "x", LABELLED, ("train", "test"), ENCODER)
    expected = {name: read(tokens) for name, tokens in whole.items()}
    path = tmp_path / "x" / file
    content = path.read_bytes()
    harmed = {"cut": content[:-3], "zeros": content[:-8] + bytes(8), "noise": bytes(range(256))}
    path.unlink()  # a mapped file is not written over
    path.write_bytes(harmed[harm])
    capsys.readouterr()
    again = cached_tokens(tmp_path / "x", LABELLED, ("train", "test"), ENCODER)
    assert {name: read(tokens) for name, tokens in again.items()} == expected
    assert f"({file} does not match its hash); rebuilding it" in capsys.readouterr().err


def test_an_empty_side_can_be_read(tmp_path):
    result = cached_tokens(tmp_path / "x", LABELLED[:1], ("train", "test"), ENCODER)
    assert (result["test"].documents, len(result["test"].tokens)) == (0, 0)


def test_the_hash_is_of_the_tokens_and_where_documents_end(tmp_path):
    def hash_of(name, *texts):
        return cached_tokens(tmp_path / name, [("test", text) for text in texts], ("test",), ENCODER)[
            "test"
        ].content_hash

    assert hash_of("a", "ab", "c") == hash_of("b", "ab", "c") != hash_of("c", "a", "bc")
