"""The order of rows: every row once a pass, the same however it is asked for."""

import numpy as np
import pytest

from softmax_rnn.train.order import Order


def test_every_row_once_a_pass_and_each_pass_in_another_order():
    order = Order(rows=37, seed=5)
    passes = [order.take(37 * turn, 37).tolist() for turn in range(3)]
    assert all(sorted(one) == list(range(37)) for one in passes)
    assert passes[0] != passes[1] != passes[2] != passes[0]


@pytest.mark.parametrize("batch", [1, 4, 10, 37, 100])
def test_batches_are_pieces_of_one_sequence(batch):
    order = Order(rows=37, seed=5)
    whole = order.take(0, 400)
    pieces = [order.take(start, min(batch, 400 - start)) for start in range(0, 400, batch)]
    assert (np.concatenate(pieces) == whole).all()


def test_the_seed_makes_the_order():
    first, again, other = Order(50, 1).take(0, 50), Order(50, 1).take(0, 50), Order(50, 2).take(0, 50)
    assert (first == again).all()
    assert not (first == other).all()
