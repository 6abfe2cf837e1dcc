"""Multi-query associative recall: every row recomputed from its definition, and the distribution of the whole."""

import numpy as np
import pytest

from softmax_rnn.data.rows import IGNORED
from softmax_rnn.data.tasks.accuracy import correct
from softmax_rnn.data.tasks.mqar import MQAR, MQAR_ANCHORS

SIGMAS = 4.5
SETTINGS = {
    "default": {},
    "zeros": {"random_non_queries": False},
    "crowded": {"vocab_size": 18, "length": 32, "pairs": 8},
    "uniform gaps": {"length": 128, "pairs": 5, "power_a": 1.0},
    "odd vocabulary": {"vocab_size": 257, "length": 4, "pairs": 1},
}


def rows_of(examples=500, **settings):
    return MQAR(test_examples=examples, **settings).rows("test", seed=3)


def look_up(tokens):
    """The answer of a reader with a dictionary: what followed the first occurrence of the token, 0 without one."""
    follower, answers = {}, []
    for token, after in zip(tokens, [*tokens[1:], 0], strict=True):
        answers.append(follower.get(token, 0))
        follower.setdefault(token, after)
    return answers


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_every_row_is_pairs_then_each_key_once_with_its_value_as_target(settings):
    rows = rows_of(**settings)
    pairs, vocab = rows.task.pairs, rows.task.vocab_size
    for row in (rows[i] for i in range(len(rows))):
        tokens, targets = row["input_ids"].tolist(), row["targets"].tolist()
        keys, values = tokens[0 : 2 * pairs : 2], tokens[1 : 2 * pairs : 2]
        assert len(set(keys)) == len(set(values)) == pairs
        assert all(1 <= key < vocab // 2 for key in keys)
        assert all(vocab // 2 <= value < vocab for value in values)
        asked = {t: target for t, target in enumerate(targets) if target != IGNORED}
        assert all(t >= 2 * pairs and t % 2 == 0 for t in asked)
        assert sorted(tokens[t] for t in asked) == sorted(keys)
        bound = dict(zip(keys, values, strict=True))
        assert all(bound[tokens[t]] == target for t, target in asked.items())
        if not rows.task.random_non_queries:
            assert all(tokens[t] == 0 for t in range(2 * pairs, len(tokens)) if t not in asked)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_reader_with_a_dictionary_is_always_right(settings):
    rows = rows_of(**settings)
    answers = np.array([look_up(tokens) for tokens in rows.inputs.tolist()])
    assert correct(answers, rows.targets) == (len(rows) * rows.task.pairs,) * 2


def test_a_guess_that_does_not_look_back_is_right_by_chance():
    rows = rows_of(5000, vocab_size=64, pairs=8)
    right, counted = correct(np.full(rows.targets.shape, 40), rows.targets)
    chance = rows.task.chance_accuracy
    assert chance == 1 / 32
    assert abs(right - counted * chance) <= SIGMAS * np.sqrt(counted * chance)


def gaps_of(rows):
    """The gap of each pair's query, in the order of the pairs."""
    pairs = rows.task.pairs
    result = []
    for tokens, targets in zip(rows.inputs.tolist(), rows.targets.tolist(), strict=True):
        where = {tokens[t]: (t - 2 * pairs) // 2 for t, target in enumerate(targets) if target != IGNORED}
        result.append([where[key] for key in tokens[0 : 2 * pairs : 2]])
    return np.array(result)


@pytest.mark.parametrize("power_a", [0.01, 0.5, 1.0])
def test_the_gap_of_the_first_pair_follows_the_power_law(power_a):
    rows = rows_of(10_000, pairs=4, power_a=power_a)
    weights = np.array([(gap + 1) ** (power_a - 1) for gap in range((64 - 8) // 2)])
    expected = len(rows) * weights / weights.sum()
    counts = np.bincount(gaps_of(rows)[:, 0], minlength=len(weights))
    assert (np.abs(counts - expected) <= SIGMAS * np.sqrt(expected)).all()
    chi_square = ((counts - expected) ** 2 / expected).sum()
    degrees = len(weights) - 1
    assert abs(chi_square - degrees) <= SIGMAS * np.sqrt(2 * degrees)


def test_the_gap_of_the_second_pair_follows_from_the_first():
    rows = rows_of(10_000, length=16, pairs=2)
    p = np.array([(gap + 1) ** -0.99 for gap in range(6)])
    p /= p.sum()
    expected = len(rows) * np.array([[p[a] * p[b] / (1 - p[a]) if a != b else 0 for b in range(6)] for a in range(6)])
    counts = np.zeros((6, 6))
    np.add.at(counts, tuple(gaps_of(rows).T), 1)
    assert (np.abs(counts - expected) <= SIGMAS * np.sqrt(expected)).all()


def test_keys_values_and_fillers_are_uniform():
    rows = rows_of(10_000, vocab_size=16, length=16, pairs=2)

    def assert_uniform(tokens, low, high):
        counts = np.bincount(tokens, minlength=16)
        expected = len(tokens) / (high - low)
        assert counts[low:high].sum() == len(tokens)
        assert (np.abs(counts[low:high] - expected) <= SIGMAS * np.sqrt(expected)).all()

    for place in (0, 2):
        assert_uniform(rows.inputs[:, place], 1, 8)
        assert_uniform(rows.inputs[:, place + 1], 8, 16)
    behind = rows.inputs[:, 4:]
    assert_uniform(behind[rows.targets[:, 4:] == IGNORED], 0, 16)


def test_the_anchors_are_those_of_the_published_table():
    settings = {name: (task.length, task.pairs, task.vocab_size) for name, task in MQAR_ANCHORS.items()}
    assert settings == {"64_4": (64, 4, 8192), "128_8": (128, 8, 8192), "256_16": (256, 16, 8192)}
    assert all((task.train_examples, task.test_examples) == (100_000, 3_000) for task in MQAR_ANCHORS.values())
