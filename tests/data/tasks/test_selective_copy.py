"""Selective copying: solved by its definition, and uniform where it says so."""

import itertools
from collections import Counter

import numpy as np
import pytest

from softmax_rnn.data.rows import IGNORED
from softmax_rnn.data.tasks.accuracy import correct
from softmax_rnn.data.tasks.selective_copy import SelectiveCopy

SIGMAS = 4.5


def rows_of(examples=500, **settings):
    return SelectiveCopy(test_examples=examples, **settings).rows("test", seed=3)


def recite(tokens, marker):
    """The answer of a reader that queues what is no blank and takes from the queue at every marker."""
    queue, answers = [], []
    for token in tokens:
        if token not in (0, marker):
            queue.append(token)
        answers.append(queue.pop(0) if token == marker else 0)
    return answers


@pytest.mark.parametrize("settings", [{}, {"length": 6, "data_tokens": 3}, {"vocab_size": 4, "length": 40}])
def test_a_reader_with_a_queue_is_always_right(settings):
    rows = rows_of(**settings)
    count, marker = rows.task.data_tokens, rows.task.vocab_size - 1
    answers = np.array([recite(tokens, marker) for tokens in rows.inputs.tolist()])
    assert correct(answers, rows.targets) == (len(rows) * count, len(rows) * count)
    assert (rows.inputs[:, -count:] == marker).all()
    assert (rows.targets[:, :-count] == IGNORED).all()


def test_a_guess_that_does_not_look_back_is_right_by_chance():
    rows = rows_of(3000)
    right, counted = correct(np.full(rows.targets.shape, 5), rows.targets)
    chance = rows.task.chance_accuracy
    assert chance == 1 / 14
    assert abs(right - counted * chance) <= SIGMAS * np.sqrt(counted * chance)


def test_places_and_data_are_uniform():
    rows = rows_of(20_000, vocab_size=6, length=7, data_tokens=2)
    places = Counter(tuple(np.flatnonzero(tokens).tolist()) for tokens in rows.inputs[:, :5])
    data = Counter(map(tuple, rows.targets[:, 5:].tolist()))
    for counts, outcomes in (
        (places, list(itertools.combinations(range(5), 2))),
        (data, list(itertools.product(range(1, 5), repeat=2))),
    ):
        expected = len(rows) / len(outcomes)
        assert set(counts) == set(outcomes)
        assert all(abs(count - expected) <= SIGMAS * np.sqrt(expected) for count in counts.values())
