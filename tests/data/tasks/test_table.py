"""What all tasks have in common: names, settings, seeds, records."""

import hashlib
import json

import numpy as np
import pytest
from pydantic import ValidationError

from softmax_rnn.data.rows import IGNORED, Rows
from softmax_rnn.data.tasks.table import TASKS, task_config
from softmax_rnn.data.tasks.task import BLOCK
from softmax_rnn.errors import InputError

SMALL = {"length": 64, "train_examples": BLOCK + 50, "test_examples": 40}


@pytest.fixture(params=TASKS)
def task(request):
    return task_config(request.param, **SMALL)


def test_rows_keep_the_contract(task):
    rows = task.rows("train", seed=0)
    assert isinstance(rows, Rows)
    assert len(rows) == BLOCK + 50
    assert len(task.rows("test", seed=0)) == 40
    for row in (rows[0], rows[-1]):
        assert set(row) == {"input_ids", "targets"}
        assert all(column.dtype == np.int64 and column.shape == (task.context,) for column in row.values())
        assert row["input_ids"].min() >= 0
        assert row["input_ids"].max() < task.vocab_size
        assert (row["targets"] != IGNORED).sum() == task.counted_per_row
    with pytest.raises(IndexError):
        rows[len(rows)]


def test_a_row_is_a_copy(task):
    rows = task.rows("test", seed=0)
    rows[0]["input_ids"][:] = -1
    assert rows[0]["input_ids"].min() >= 0
    with pytest.raises(ValueError, match="read-only"):
        rows.inputs[0] = 0


def test_the_seed_and_the_side_decide(task):
    first = task.rows("train", seed=5)
    assert task.rows("train", seed=5).content_hash == first.content_hash
    assert task.rows("train", seed=6).content_hash != first.content_hash
    known = {tokens.tobytes() for tokens in first.inputs}
    assert not any(tokens.tobytes() in known for tokens in task.rows("test", seed=5).inputs)
    assert not any(tokens.tobytes() in known for tokens in task.rows("train", seed=6).inputs)


def test_fewer_examples_are_the_first_of_more(task):
    more = task.rows("train", seed=0)
    fewer = task.model_copy(update={"train_examples": 30}).rows("train", seed=0)
    assert (fewer.inputs == more.inputs[:30]).all()
    assert (fewer.targets == more.targets[:30]).all()


# These change only when a task changes: other machines and later versions must draw the same rows.
HASHES = {
    "mqar": "013c11a4404662972b0167265c75ac125c2ac27b0ba629bea2a68ba9228fe812",
    "selective_copy": "6b5a47919b0efa1e55afb70876acf95d0834aea52651cec0aeafb1af061be7b5",
    "induction": "18abdbbd7d933d3edbe996470ef859918a6f5306fb8874bb429fe3d615999ea8",
}


def test_the_same_rows_on_every_machine(task):
    rows = task.rows("test", seed=1)
    assert rows.content_hash == HASHES[task.name]
    shape = str((40, 64)).encode()
    tokens = b"".join(table.astype("<i8").tobytes() for table in (rows.inputs, rows.targets))
    assert hashlib.sha256(shape + tokens).hexdigest() == rows.content_hash


@pytest.mark.parametrize(("vocab_size", "kind"), [(128, np.int8), (129, np.int16), (32769, np.int32)])
def test_tokens_are_stored_small_and_whole(vocab_size, kind):
    rows = task_config("induction", length=400, vocab_size=vocab_size, test_examples=1000).rows("test", seed=0)
    assert rows.inputs.dtype == rows.targets.dtype == kind
    assert rows.inputs.min() >= 0
    assert rows.inputs.max() == vocab_size - 1


def test_facts_go_to_json_and_the_settings_come_back(task):
    rows = task.rows("test", seed=2)
    facts = json.loads(json.dumps(rows.facts()))
    assert task_config(facts["task"], **facts["settings"]) == task
    assert (facts["side"], facts["seed"], facts["examples"], facts["context"]) == ("test", 2, 40, 64)
    assert facts["counted_per_row"] == (rows.targets != IGNORED).sum() / 40
    assert facts["chance_accuracy"] == task.chance_accuracy
    assert facts["content_hash"] == rows.content_hash


def test_a_task_is_a_value(task):
    assert hash(task) == hash(task_config(**task.model_dump()))
    with pytest.raises(ValidationError, match="frozen"):
        task.length = 3


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("mqarr", {}, "unknown task 'mqarr'; did you mean 'mqar'?"),
        ("mqar", {"pair": 3}, "unknown setting of mqar 'pair'; did you mean 'pairs'?"),
        ("mqar", {"length": 63}, "length: expected an even number, got 63"),
        ("mqar", {"pairs": 17}, "pairs: expected at most length/4 = 16, got 17"),
        ("mqar", {"pairs": 8, "vocab_size": 16}, "pairs: expected at most vocab_size/2 - 1 = 7, got 8"),
        ("mqar", {"pairs": 0}, "pairs: expected a number greater than or equal to 1, got 0"),
        ("mqar", {"power_a": 0}, "power_a: expected a number greater than 0, got 0"),
        ("mqar", {"power_a": float("nan")}, "power_a: expected a finite number, got nan"),
        ("selective_copy", {"length": 8, "data_tokens": 5}, "data_tokens: expected at most length/2 = 4, got 5"),
        ("induction", {"length": 2}, "length: expected a number greater than or equal to 3, got 2"),
        ("induction", {"test_examples": 0}, "test_examples: expected a number greater than or equal to 1, got 0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(name, settings, message):
    with pytest.raises(InputError) as caught:
        task_config(name, **settings)
    assert str(caught.value) == message


def test_a_task_refuses_unknown_settings_by_itself(task):
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        type(task)(lenght=3)


@pytest.mark.parametrize("seed", [-1, 1.5, "0", None])
def test_a_seed_is_a_whole_number(task, seed):
    with pytest.raises(InputError, match="seed: expected a whole number of 0 or more"):
        task.rows("train", seed)


def test_a_side_is_train_or_test(task):
    with pytest.raises(InputError, match="unknown side 'tests'; did you mean 'test'"):
        task.rows("tests", seed=0)
