"""A stream that stops and goes on is the stream that never stopped."""

import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from softmax_rnn.data import text_stream as module
from softmax_rnn.data.rows import IGNORED
from softmax_rnn.data.split import in_test
from softmax_rnn.data.text import load_text
from softmax_rnn.data.text_config import TextConfig
from softmax_rnn.errors import InputError

FRACTION = 0.2


def stream(folder, *, seed=0, context=16, **options):
    settings = {"layout": "packed", "shuffle_buffer": 7, "workers": 1, **options}
    config = TextConfig(source=str(folder), streaming=True, test_fraction=FRACTION, **settings)
    return load_text(config, context=context, seed=seed).train


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for one, two in zip(ours, theirs, strict=True):
        assert one.keys() == two.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])


@pytest.mark.parametrize(("layout", "rows"), [("packed", 130), ("padded", 110)])
def test_resumed_at_every_row_it_goes_on_as_if_uninterrupted(jsonl, layout, rows):
    folder, texts = jsonl
    assert rows > 2 * sum(not in_test(text, FRACTION) for text in texts)  # two passes and more
    running, states, expected = stream(folder, layout=layout), [], []
    for _ in range(rows):
        states.append(json.dumps(running.state_dict()))
        expected.append(next(running))
    resumed = stream(folder, layout=layout)
    for place in range(rows - 9):
        resumed.load_state_dict(json.loads(states[place]))
        same(list(islice(resumed, 9)), expected[place : place + 9])


@pytest.mark.parametrize("shards", [1, 3, 1024])
@pytest.mark.parametrize("ending", ["txt", "parquet"])
def test_other_files_resume_too(tmp_path, jsonl, monkeypatch, ending, shards):
    import datasets

    monkeypatch.setattr(module, "_MOST_SHARDS", shards)
    folder = tmp_path / "other"
    folder.mkdir()
    for number in range(4):
        part = jsonl[1][number * 10 : number * 10 + 10]
        if ending == "parquet":
            datasets.Dataset.from_dict({"text": part}).to_parquet(folder / f"{number}.parquet")
        else:
            for index, text in enumerate(part):
                (folder / f"{number}{index}.txt").write_text(text)
    running = stream(folder)
    for _ in range(5):
        list(islice(running, 17))
        state = json.loads(json.dumps(running.state_dict()))
        resumed = stream(folder)
        resumed.load_state_dict(state)
        same(list(islice(resumed, 10)), list(islice(running, 10)))


def text_of_padded(row):
    return bytes(row["input_ids"][row["attention_mask"] == 1][:-1].astype(np.uint8)).decode()


def test_a_pass_has_every_train_document_once_and_no_test_document(jsonl):
    folder, texts = jsonl
    train = Counter(text for text in texts if not in_test(text, FRACTION))
    size = train.total()
    running = stream(folder, layout="padded", context=64, shuffle_buffer=size)
    for _ in range(3):
        assert Counter(text_of_padded(row) for row in islice(running, size)) == train


def test_passes_and_seeds_come_in_different_orders(jsonl):
    folder, texts = jsonl
    size = sum(not in_test(text, FRACTION) for text in texts)

    def order(seed, **options):
        running = stream(folder, layout="padded", context=64, shuffle_buffer=1, seed=seed, **options)
        return [[text_of_padded(row) for row in islice(running, size)] for _ in range(3)]

    first, again, other = order(0), order(0), order(1)
    assert first == again != other
    assert len({tuple(one) for one in first}) > 1  # the shards are in another order


def test_only_the_first_documents_again_and_again(jsonl):
    folder, texts = jsonl
    train = [text for text in texts[:15] if not in_test(text, FRACTION)]
    running = stream(folder, layout="padded", context=64, shuffle_buffer=1, max_documents=15)
    assert [text_of_padded(row) for row in islice(running, 2 * len(train))] == train * 2


def test_packed_rows_are_the_documents_in_order(jsonl):
    folder, texts = jsonl
    running = stream(folder, shuffle_buffer=1, max_documents=60)
    rows = list(islice(running, 20))
    train = [text for text in texts if not in_test(text, FRACTION)]
    owner, expected = [], []
    for number, text in enumerate(train):
        tokens = [*text.encode(), 256]
        expected += tokens
        owner += [number] * len(tokens)
    inputs = np.concatenate([row["input_ids"] for row in rows])
    assert inputs.tolist() == expected[: len(inputs)]
    for index, row in enumerate(rows):
        here = np.array(owner[index * 16 : index * 16 + 17])
        following = np.array(expected[index * 16 + 1 : index * 16 + 17])
        assert row["targets"].tolist() == np.where(here[1:] == here[:-1], following, IGNORED).tolist()
        assert row["segment_ids"].tolist() == (here[:-1] - here[0]).tolist()


def test_a_place_in_another_stream_is_refused(jsonl):
    state = stream(jsonl[0]).state_dict()
    for other in ({"context": 17}, {"seed": 1}, {"layout": "padded"}, {"shuffle_buffer": 8}):
        with pytest.raises(InputError, match=r"^state: this position belongs to a stream with another content"):
            stream(jsonl[0], **other).load_state_dict(state)


def test_the_place_is_small(jsonl):
    running = stream(jsonl[0], shuffle_buffer=50)
    list(islice(running, 130))
    assert len(json.dumps(running.state_dict())) < 2000


def test_a_stream_of_nothing_but_test_documents_says_so(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n')  # "a" is a test document for a half
    config = TextConfig(source=str(tmp_path), streaming=True, test_fraction=0.5)
    with pytest.raises(InputError, match=r"^source: a whole pass over the stream found no document for training$"):
        next(load_text(config, context=4, seed=0).train)
