"""The loss over all rows, against a loop over rows and positions; shared among processes it is the same."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from softmax_rnn.data.rows import IGNORED
from softmax_rnn.train import evaluation
from softmax_rnn.train.evaluation import BINS, evaluate
from softmax_rnn.train.processes import Share

VOCAB = 11


@pytest.fixture
def network():
    torch.manual_seed(0)
    table = torch.randn(VOCAB, VOCAB)
    return lambda input_ids: SimpleNamespace(logits=table[input_ids] + input_ids[..., None].cumsum(1) * 0.01)


def rows(count, length=7, seed=0):
    chance = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        targets = chance.integers(0, VOCAB, length)
        targets[chance.random(length) < 0.3] = IGNORED
        made.append({"input_ids": chance.integers(0, VOCAB, length), "targets": targets})
    return made


def literal(network, table):
    """Losses and right guesses of each position, row by row."""
    losses, right = {}, 0
    for row in table:
        logits = network(torch.from_numpy(row["input_ids"])[None]).logits[0].double()
        for t, target in enumerate(row["targets"].tolist()):
            if target != IGNORED:
                log_sum = math.log(sum(math.exp(x) for x in logits[t].tolist()))
                losses.setdefault(t, []).append(log_sum - float(logits[t, target]))
                right += int(logits[t].argmax()) == target
    return losses, right


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_evaluation_is_the_literal_double_loop(network, batch_size):
    table = rows(13)
    losses, right = literal(network, table)
    flat = [loss for some in losses.values() for loss in some]
    result = evaluate(network, table, batch_size=batch_size)
    assert result.tokens == len(flat)
    assert result.loss == pytest.approx(sum(flat) / len(flat), abs=1e-6)
    assert result.perplexity == pytest.approx(math.exp(sum(flat) / len(flat)), rel=1e-6)
    assert result.accuracy == right / len(flat)
    by_position = [sum(losses[t]) / len(losses[t]) for t in range(7)]
    assert result.by_position == pytest.approx(by_position, abs=1e-6)


@pytest.mark.parametrize("processes", [2, 3, 5, 16])
def test_shares_of_processes_add_up_to_the_whole(network, processes, monkeypatch):
    table = rows(13)
    sums = []
    monkeypatch.setattr(evaluation, "together_sum", lambda values: sums.append(values.clone()) or values)
    for rank in range(processes):
        evaluate(network, table, batch_size=2, share=Share(rank, processes))
    whole = evaluate(network, table, batch_size=2)
    total = evaluation._evaluation(torch.stack(sums[:processes]).sum(0))
    assert total.tokens == whole.tokens
    assert total.loss == pytest.approx(whole.loss, abs=1e-9)
    assert total.by_position == pytest.approx(whole.by_position, abs=1e-9)


def test_all_processes_compute_equally_many_batches():
    counts = {len(list(evaluation._batches(rows(13), 2, Share(rank, 5)))) for rank in range(5)}
    assert counts == {2}


def test_long_rows_are_given_in_equal_parts(network):
    result = evaluate(network, rows(3, length=256), batch_size=2)
    assert len(result.by_position) == BINS


def test_positions_without_a_target_have_no_loss(network):
    row = {"input_ids": np.array([1, 2]), "targets": np.array([IGNORED, 3])}
    result = evaluate(network, [row], batch_size=1)
    assert result.by_position[0] is None
    assert result.by_position[1] == pytest.approx(result.loss)


def test_a_module_is_in_evaluation_mode_inside_and_comes_back():
    class Net(torch.nn.Module):
        seen = None

        def forward(self, input_ids):
            self.seen = self.training
            return SimpleNamespace(logits=torch.zeros(*input_ids.shape, VOCAB))

    net = Net().train()
    evaluate(net, rows(2), batch_size=2)
    assert net.seen is False
    assert net.training is True
