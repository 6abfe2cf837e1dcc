"""The bench of training runs and measures what it says; no test looks at a time."""

import pytest

from softmax_rnn.bench import train
from softmax_rnn.bench.results import run
from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.run_data import load_run_data

TINY = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def test_the_clock_leaves_out_the_first_steps():
    clock = train.Clock()
    clock.ticks = [1.0, 5.0, 6.0, 8.0]
    assert clock.seconds == 3.0


def test_both_loops_see_the_same_batches(monkeypatch):
    data = {"source": "mqar", "vocab_size": 32, "length": 16, "pairs": 2, "train_examples": 40, "test_examples": 4}
    config = resolve({"model": TINY, "data": data, "steps": 4, "batch_size": 8})
    seen: list[list[int]] = []
    data = load_run_data(config)
    count = train.counted
    note = lambda targets: seen.append(targets.tolist()) or count(targets)  # noqa: E731
    monkeypatch.setattr(train, "counted", note)
    monkeypatch.setattr("softmax_rnn.train.loop.counted", note)
    assert train.bare_seconds(config, data) > 0
    assert train.loop_seconds(config, data) > 0
    assert len(seen) == 8
    assert seen[:4] == seen[4:]


@pytest.mark.slow
def test_tokenising_is_claimed_for_both_tokenizers():
    claims = run([train._tokenising(name, 40) for name in ("bytes", "bpe")]).claims
    assert [claim.text.split(":")[0] for claim in claims] == ["bytes", "bpe"]
    assert all(claim.measured > 0 and claim.limit == 1.0 and not claim.at_most for claim in claims)


def test_pages_are_short_documents(tmp_path):
    train.write_pages(tmp_path / "texts.jsonl", pages=5)
    lines = (tmp_path / "texts.jsonl").read_text().splitlines()
    assert len(lines) == 5


def test_the_tasks_are_the_three_promises():
    titles = [task.title for task in train.train_tasks(quick=True)]
    assert titles == ["the training loop, 10 steps", "tokenising: bytes", "tokenising: bpe", "warm start"]
