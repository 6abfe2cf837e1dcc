"""Choices without repetition against the probability of every outcome."""

import itertools
from collections import Counter

import numpy as np
import pytest

from softmax_rnn.data.tasks.draws import distinct, stream, weighted_distinct

DRAWS = 48_000
SIGMAS = 4.5
"""Standard deviations a count may lie from its expectation: 7 in a million for one count."""


def assert_counts_fit(drawn, probabilities):
    counts = Counter(map(tuple, drawn.tolist()))
    assert set(counts) <= set(probabilities)
    assert sum(probabilities.values()) == pytest.approx(1)
    for outcome, p in probabilities.items():
        assert abs(counts[outcome] - DRAWS * p) <= SIGMAS * np.sqrt(DRAWS * p * (1 - p)), outcome


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_ordered_choice_is_equally_likely(count):
    outcomes = list(itertools.permutations(range(7, 11), count))
    drawn = distinct(stream("any", "train", 0, 0), DRAWS, count, 7, 11)
    assert_counts_fit(drawn, {outcome: 1 / len(outcomes) for outcome in outcomes})


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_weights_are_those_of_drawing_one_after_the_other(count):
    weights = np.array([4.0, 1.0, 2.5, 0.5])

    def probability(outcome):
        p, left = 1.0, weights.sum()
        for index in outcome:
            p, left = p * weights[index] / left, left - weights[index]
        return p

    outcomes = itertools.permutations(range(4), count)
    drawn = weighted_distinct(stream("any", "train", 0, 1), DRAWS, count, weights)
    assert_counts_fit(drawn, {outcome: probability(outcome) for outcome in outcomes})


def test_all_numbers_of_a_range_can_be_taken():
    drawn = distinct(stream("any", "train", 0, 0), 50, 127, 1, 128)
    assert (np.sort(drawn, axis=1) == np.arange(1, 128)).all()


def test_streams_that_differ_in_one_word_share_nothing():
    keys = [("a", "train", 0, 0), ("b", "train", 0, 0), ("a", "test", 0, 0), ("a", "train", 1, 0), ("a", "train", 0, 1)]
    drawn = np.stack([stream(*key).integers(0, 2**63, 1000) for key in keys])
    assert len(np.unique(drawn)) == drawn.size
    assert (stream(*keys[0]).integers(0, 2**63, 1000) == drawn[0]).all()
