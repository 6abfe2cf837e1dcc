"""Accuracy counts what is counted, for both kinds of arrays."""

import numpy as np
import pytest
import torch

from softmax_rnn.data.rows import IGNORED
from softmax_rnn.data.tasks.accuracy import correct
from softmax_rnn.errors import InputError


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_only_counted_positions_count(kind):
    predicted = kind([[1, 2, 3], [4, IGNORED, 6]])
    targets = kind([[1, IGNORED, 4], [IGNORED, IGNORED, 6]])
    assert correct(predicted, targets) == (2, 3)


def test_nothing_counted():
    assert correct(np.array([1]), np.array([IGNORED])) == (0, 0)


def test_shapes_must_agree():
    with pytest.raises(InputError, match=r"predicted: expected shape \(2, 3\), as targets, got \(3,\)"):
        correct(np.zeros(3), np.zeros((2, 3)))
