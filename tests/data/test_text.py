"""From a configuration to rows."""

import json
import shutil
from itertools import count

import numpy as np
import pytest
from pydantic import ValidationError

from softmax_rnn.data.rows import IGNORED, Rows, RowStream
from softmax_rnn.data.split import in_test
from softmax_rnn.data.text import load_text
from softmax_rnn.data.text_config import TextConfig
from softmax_rnn.data.tokenisers import tokenizer_hash, train_bpe
from softmax_rnn.errors import InputError


def config(folder, **options):
    return TextConfig(source=str(folder), **{"test_fraction": 0.2, "workers": 1, **options})


def every(rows, name):
    return np.concatenate([rows[index][name] for index in range(len(rows))])


def text_in(rows):
    return bytes(token for token in every(rows, "input_ids").tolist() if token < 256).decode()


def test_both_sides_are_the_documents(jsonl):
    folder, texts = jsonl
    data = load_text(config(folder), context=8, seed=0)
    train = "".join(text for text in texts if not in_test(text, 0.2))
    assert text_in(data.test) == "".join(text for text in texts if in_test(text, 0.2))
    assert train.startswith(text_in(data.train)) and len(text_in(data.train)) > len(train) - 8
    assert isinstance(data.train, Rows) and isinstance(data.test, Rows)


def test_the_facts(jsonl):
    folder, texts = jsonl
    data = load_text(config(folder), context=8, seed=0)
    test = [text for text in texts if in_test(text, 0.2)]
    facts = data.facts
    assert json.loads(json.dumps(facts)) == facts
    assert facts["documents"] == {"train": 60 - len(test), "test": len(test)}
    assert facts["tokens"]["test"] == facts["test_bytes"] + len(test) == len("".join(test)) + len(test)
    assert facts["tokenizer"] == {"name": "bytes", "hash": tokenizer_hash(data.tokenizer)}
    assert data.vocab_size == len(data.tokenizer) == 257


def test_every_test_token_but_the_first_of_a_document_is_predicted_once(jsonl):
    data = load_text(config(jsonl[0]), context=8, seed=0)
    counted = (every(data.test, "targets") != IGNORED).sum()
    assert counted == data.facts["tokens"]["test"] - data.facts["documents"]["test"]


def test_bpe_never_sees_a_test_document(jsonl):
    folder, texts = jsonl
    data = load_text(config(folder, tokenizer="bpe", vocab_size=280), context=8, seed=0)
    train = [text for text in texts if not in_test(text, 0.2)]
    assert tokenizer_hash(data.tokenizer) == tokenizer_hash(train_bpe(train, 280))
    others = (text for text in (f"zq{number}" * 9 for number in count()) if in_test(text, 0.2))
    lines = [json.dumps({"text": next(others) if in_test(text, 0.2) else text}) for text in texts]
    for path in folder.iterdir():
        path.unlink()
    (folder / "changed.jsonl").write_text("\n".join(lines) + "\n")
    again = load_text(config(folder, tokenizer="bpe", vocab_size=280), context=8, seed=0)
    assert again.test.content_hash != data.test.content_hash
    assert tokenizer_hash(again.tokenizer) == tokenizer_hash(data.tokenizer)


def test_loaded_again_it_is_the_same_and_nothing_is_tokenised(jsonl, capsys):
    folder, _ = jsonl
    first = load_text(config(folder, tokenizer="bpe", vocab_size=280), context=8, seed=0)
    assert "tokenising" in capsys.readouterr().err
    again = load_text(config(folder, tokenizer="bpe", vocab_size=280), context=8, seed=0)
    assert "tokenising" not in capsys.readouterr().err
    assert again.facts == first.facts
    assert (again.train.content_hash, again.test.content_hash) == (first.train.content_hash, first.test.content_hash)


def test_the_cache_does_not_matter(jsonl, tmp_path):
    first = load_text(config(jsonl[0]), context=8, seed=0)
    before = every(first.train, "input_ids")
    shutil.rmtree(tmp_path / "cache")
    again = load_text(config(jsonl[0], cache=tmp_path / "other"), context=8, seed=0)
    np.testing.assert_array_equal(every(again.train, "input_ids"), before)
    assert again.train.content_hash == first.train.content_hash


def test_bits_per_byte_only_where_the_whole_text_is_tested(jsonl):
    long = load_text(config(jsonl[0], layout="padded"), context=64, seed=0)
    short = load_text(config(jsonl[0], layout="padded"), context=8, seed=0)
    assert long.facts["test_bytes"] == load_text(config(jsonl[0]), context=8, seed=0).facts["test_bytes"]
    assert short.facts["test_bytes"] is None


def test_a_stream_has_the_same_test_side(jsonl):
    at_hand = load_text(config(jsonl[0]), context=8, seed=0)
    streamed = load_text(config(jsonl[0], streaming=True), context=8, seed=0)
    assert isinstance(streamed.train, RowStream)
    assert streamed.test.content_hash == at_hand.test.content_hash
    assert streamed.facts["documents"] == {"train": None, "test": at_hand.facts["documents"]["test"]}
    few = load_text(config(jsonl[0], streaming=True, test_documents=2), context=8, seed=0)
    assert few.facts["documents"]["test"] == 2


def test_how_much_of_an_embedded_corpus_is_for_testing():
    data = load_text(TextConfig(source="kjv"), context=256, seed=0)
    assert sum(data.facts["documents"].values()) == 1189
    assert 0.01 < data.facts["documents"]["test"] / 1189 < 0.05  # 0.03 and four standard deviations


def test_what_cannot_be_done(jsonl, tmp_path):
    folder, _ = jsonl
    with pytest.raises(InputError, match=r"^context: expected 1 or more, got 0$"):
        load_text(config(folder), context=0, seed=0)
    with pytest.raises(InputError, match=r"^context: expected at most the \d+ tokens of the train split, got 99999$"):
        load_text(config(folder), context=99999, seed=0)
    with pytest.raises(InputError, match=r"^test_fraction: 1e-06 of 60 documents leaves the test split empty"):
        load_text(config(folder, test_fraction=1e-6), context=8, seed=0)
    with pytest.raises(InputError, match=r"^test_fraction: 1e-06 leaves the test split of the stream empty"):
        load_text(config(folder, test_fraction=1e-6, streaming=True), context=8, seed=0)
    (tmp_path / "one.txt").write_text("x")
    with pytest.raises(InputError, match=r"^source: expected 2 documents or more"):
        load_text(config(tmp_path / "one.txt"), context=8, seed=0)


@pytest.mark.parametrize("characters", [600, 3000, 30_000])
def test_one_text_file_is_enough(tmp_path, characters):
    text = "".join(f"The {number}th line, and some more.\n" for number in range(1000))[:characters]
    (tmp_path / "book.txt").write_text(text)
    data = load_text(TextConfig(source=str(tmp_path / "book.txt"), workers=1), context=32, seed=0)
    assert data.facts["documents"]["test"] >= 1 and data.facts["documents"]["train"] >= 15
    assert data.facts["tokens"]["train"] + data.facts["tokens"]["test"] == characters + sum(
        data.facts["documents"].values()
    )


@pytest.mark.parametrize("source", ["", "  "])
def test_an_empty_source_is_refused(source):
    with pytest.raises(ValidationError, match="expected a corpus, a file, a folder or a hub name"):
        TextConfig(source=source)


@pytest.mark.parametrize("wrong", [{"sorce": "x"}, {"layout": "pack"}, {"test_fraction": 1.5}, {"vocab_size": 10}])
def test_a_configuration_that_makes_no_sense(wrong):
    with pytest.raises(ValidationError):
        TextConfig(**wrong)
