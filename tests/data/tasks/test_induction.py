"""Induction: solved by its definition, and uniform where it says so."""

import numpy as np
import pytest

from softmax_rnn.data.rows import IGNORED
from softmax_rnn.data.tasks.accuracy import correct
from softmax_rnn.data.tasks.induction import Induction

SIGMAS = 4.5


def rows_of(examples=500, **settings):
    return Induction(test_examples=examples, **settings).rows("test", seed=3)


@pytest.mark.parametrize("settings", [{}, {"length": 3}, {"vocab_size": 3, "length": 20}, {"vocab_size": 300}])
def test_the_token_behind_the_first_special_one_is_the_answer(settings):
    rows = rows_of(**settings)
    special = rows.task.vocab_size - 1
    answers = np.zeros(rows.targets.shape, np.int64)
    for i, tokens in enumerate(rows.inputs.tolist()):
        assert tokens.count(special) == 2
        assert tokens[-1] == special
        answers[i, -1] = tokens[tokens.index(special) + 1]
    assert (answers[:, -1] != special).all()
    assert correct(answers, rows.targets) == (len(rows), len(rows))
    assert (rows.targets[:, :-1] == IGNORED).all()


def test_a_guess_that_does_not_look_back_is_right_by_chance():
    rows = rows_of(20_000, length=16)
    right, counted = correct(np.full(rows.targets.shape, 5), rows.targets)
    chance = rows.task.chance_accuracy
    assert chance == 1 / 15
    assert abs(right - counted * chance) <= SIGMAS * np.sqrt(counted * chance)


def test_the_special_token_stands_anywhere_and_the_others_are_uniform():
    rows = rows_of(20_000, vocab_size=5, length=10)
    body = rows.inputs[:, :-1]
    for counts, outcomes in (
        (np.bincount(np.argmax(body == 4, axis=1)), 8),
        (np.bincount(body[body != 4]), 4),
    ):
        assert len(counts) == outcomes
        expected = counts.sum() / outcomes
        assert (np.abs(counts - expected) <= SIGMAS * np.sqrt(expected)).all()
